"""Which models there are, and who trains which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Answers, Floats, Ints


class Arranged(NamedTuple):
    """The bank of a round: its models out of those of the last round, and who trains which."""

    notes: Any
    mix: Floats  # (models now, models before) each new model as a mean of old ones; rows sum to one
    is_new: npt.NDArray[np.bool_]  # (models now,) starts a life of its own: server rules begin anew
    models: Ints  # (K,) the model each client of the cohort trains


class Bank(Protocol):
    """Opens, merges and closes models, and gives each client one. Any object of this shape will do.

    One that wants to know something of the chosen clients first is also a `core.talk.Asks`.
    """

    def init(self, num_clients: int) -> Any:
        """What is known before the first round, with one model."""
        ...

    def arrange(self, notes: Any, cohort: Ints, answers: Answers, num_models: int) -> Arranged:
        """The bank for a cohort (K,) about to train; answers have a row for each of them."""
        ...

    def shares(self, notes: Any, num_models: int) -> Floats:
        """(models,) the share of the clients that each model serves; they sum to one."""
        ...


@dataclass(frozen=True)
class OneModel:
    """One global model for everybody."""

    def init(self, num_clients: int) -> None:
        return None

    def arrange(self, notes: None, cohort: Ints, answers: Answers, num_models: int) -> Arranged:
        return Arranged(None, np.eye(1), np.array([False]), np.zeros(len(cohort), dtype=np.int64))

    def shares(self, notes: None, num_models: int) -> Floats:
        return np.ones(1)
