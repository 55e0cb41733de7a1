"""Which models there are, and who trains which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.core.types import Answers, Floats, Floats32, Ints, Roster


class Arranged(NamedTuple):
    """The bank of a round: its models out of those of the last round, and who trains which."""

    notes: Any
    mix: Floats
    """(models now, models before) each new model as a mean of old ones; a row of zeros: drawn anew."""
    is_new: npt.NDArray[np.bool_]  # (models now,) starts a life of its own: server rules begin anew
    clients: (
        Ints  # (J,) jobs, ascending by client and model; everybody in the cohort has one at least
    )
    models: Ints  # (J,)
    told: Mapping[str, Floats] = {}  # (K, E) what each client of the cohort is told, see `Divides`


class Bank(Protocol):
    """Opens, merges and closes models, and gives each client one or several. Any object of this shape will do.

    One that wants to know something of the clients first is also a `core.talk.Asks`; it may ask anybody who is
    here, and finds the chosen ones in `Roster.cohort`.
    """

    def init(self, num_clients: int, num_classes: int) -> Any:
        """What is known before the first round, with one model."""
        ...

    def arrange(self, notes: Any, roster: Roster, answers: Answers, num_models: int) -> Arranged:
        """The bank for the cohort of a roster about to train; answers have a row for each of `Roster.asked`."""
        ...

    def shares(self, notes: Any, num_models: int) -> Floats:
        """(models,) the share of the clients that each model serves; they sum to one."""
        ...


class Division(NamedTuple):
    """What a client goes by when it divides its samples among the models it has received."""

    models: Ints  # (J,) ascending
    losses: Floats32  # (J, held) cross-entropy of every sample under each model, as it was received
    labels: Ints  # (held,)
    since: Ints  # (held,) the round in which each sample came
    rnd: int


@runtime_checkable
class Divides(Protocol):
    """A bank with a half at the client, which says what every sample counts for every model it trains."""

    def begin_division(self, num_classes: int) -> Any:
        """What a client keeps for it before its first round."""
        ...

    def divide(
        self, kept: Any, division: Division, heard: Mapping[str, Floats32]
    ) -> tuple[Any, Floats]:
        """What it keeps next, and (J, held) not negative: what a sample counts for a model.

        A sample that counts nothing for any model is not learnt from at all. `heard` is the client's row of
        `Arranged.told`.
        """
        ...

    def main(self, kept: Any, models: Ints) -> int:
        """The place among its models (J,) of the one that predicts for this client."""
        ...

    def say(self, kept: Any) -> Mapping[str, Floats32]:
        """What the client tells the server when it has trained: vectors by name, of one length for all."""
        ...

    def hear(self, notes: Any, clients: Ints, said: Mapping[str, Floats32]) -> Any:
        """What the server knows after these words (K, E); no client comes twice."""
        ...


@runtime_checkable
class Mixes(Protocol):
    """A bank whose clients use several models at once."""

    def mixtures(self, notes: Any, num_models: int) -> Floats:
        """(N, models) how much each client uses each model; rows sum to one."""
        ...


@runtime_checkable
class RemarksOnBank(Protocol):
    """A bank that has something to say about a round, for the metrics."""

    def remark(self, notes: Any, roster: Roster) -> Mapping[str, float]:
        """After it has arranged the models of the roster's round."""
        ...


def chosen(roster: Roster) -> Ints:
    """(K,) the cohort of a roster, which has one by the time that a bank is asked to arrange things."""
    require(
        roster.cohort is not None,
        "a bank arranges models for the cohort of a roster, and this roster has none; "
        "give it one: dataclasses.replace(roster, cohort=...).",
    )
    assert roster.cohort is not None
    return roster.cohort


@dataclass(frozen=True)
class OneModel:
    """One global model for everybody."""

    def init(self, num_clients: int, num_classes: int) -> None:
        return None

    def arrange(self, notes: None, roster: Roster, answers: Answers, num_models: int) -> Arranged:
        cohort = chosen(roster)
        everybody = np.zeros(len(cohort), dtype=np.int64)
        return Arranged(None, np.eye(1), np.array([False]), cohort, everybody)

    def shares(self, notes: None, num_models: int) -> Floats:
        return np.ones(1)
