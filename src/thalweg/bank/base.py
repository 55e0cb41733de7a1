"""Which models there are, and who trains which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints, Roster, SurveyResponses


class BankAssignment(NamedTuple):
    """The bank of a round: its models out of those of the last round, and who trains which."""

    notes: Any
    mix: Floats
    """(models now, models before) each new model as a mean of old ones; a row of zeros: drawn anew."""
    is_new: npt.NDArray[np.bool_]  # (models now,) starts a life of its own: server rules begin anew
    clients: (
        Ints  # (J,) jobs, ascending by client and model; everybody in the cohort has one at least
    )
    models: Ints  # (J,)
    broadcast: Mapping[
        str, Floats
    ] = {}  # (K, E) what each client of the cohort is told, see `SplitsSamples`


class Bank(Protocol):
    """Opens, merges and closes models, and gives each client one or several. Any object of this shape will do.

    One that wants to know something of the clients first is also a `core.talk.Surveys`; it may ask anybody who is
    here, and finds the chosen ones in `Roster.cohort`.
    """

    def init(self, num_clients: int, num_classes: int) -> Any:
        """What is known before the first round, with one model."""
        ...

    def assign(
        self, notes: Any, roster: Roster, answers: SurveyResponses, num_models: int
    ) -> BankAssignment:
        """The bank for the cohort of a roster about to train; answers have a row for each of `Roster.surveyed`."""
        ...

    def shares(self, notes: Any, num_models: int) -> Floats:
        """(models,) the share of the clients that each model serves; they sum to one."""
        ...


class SplitContext(NamedTuple):
    """What a client goes by when it divides its samples among the models it has received."""

    models: Ints  # (J,) ascending
    losses: Floats32  # (J, held) cross-entropy of every sample under each model, as it was received
    labels: Ints  # (held,)
    since: Ints  # (held,) the round in which each sample came
    rnd: int


@runtime_checkable
class SplitsSamples(Protocol):
    """A bank with a half at the client, which says what every sample counts for every model it trains."""

    def init_split(self, num_classes: int) -> Any:
        """What a client keeps for it before its first round."""
        ...

    def split_samples(
        self, kept: Any, split: SplitContext, received: Mapping[str, Floats32]
    ) -> tuple[Any, Floats]:
        """What it keeps next, and (J, held) not negative: what a sample counts for a model.

        A sample that counts nothing for any model is not learnt from at all. `received` is the client's row of
        `BankAssignment.broadcast`.
        """
        ...

    def main_model(self, kept: Any, models: Ints) -> int:
        """The place among its models (J,) of the one that predicts for this client."""
        ...

    def upload(self, kept: Any) -> Mapping[str, Floats32]:
        """What the client tells the server when it has trained: vectors by name, of one length for all."""
        ...

    def collect(self, notes: Any, clients: Ints, uploads: Mapping[str, Floats32]) -> Any:
        """What the server knows after these words (K, E); no client comes twice."""
        ...


@runtime_checkable
class MixesModels(Protocol):
    """A bank whose clients use several models at once."""

    def mixtures(self, notes: Any, num_models: int) -> Floats:
        """(N, models) how much each client uses each model; rows sum to one."""
        ...


@runtime_checkable
class ExtraBankMetrics(Protocol):
    """A bank that has something to say about a round, for the metrics."""

    def extra_metrics(self, notes: Any, roster: Roster) -> Mapping[str, float]:
        """After it has arranged the models of the roster's round."""
        ...


def require_cohort(roster: Roster) -> Ints:
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

    def assign(
        self, notes: None, roster: Roster, answers: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort = require_cohort(roster)
        everybody = np.zeros(len(cohort), dtype=np.int64)
        return BankAssignment(None, np.eye(1), np.array([False]), cohort, everybody)

    def shares(self, notes: None, num_models: int) -> Floats:
        return np.ones(1)
