"""Client selection: the protocol, and helpers shared by several rules."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from thalweg.core.types import Floats, Ints, Roster


class Selection(Protocol):
    """Chooses the cohort: the clients that train in a round.

    Implement `choose`; no base class is needed. Optional capabilities (`core.capabilities`):
    survey clients before choosing (`Surveys`), count labels at each client (`CountsLabels`), store
    numbers about choices (`RecordsChoices`), and add metrics to the round (`ExtraMetrics`).
    """

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        """Return the ids (k,) of the chosen clients.

        They are different elements of ``roster.present``. No client at all is allowed. All
        randomness must come from `rng`.
        """
        ...


def cohort_size(share: float, num_present: int) -> int:
    """Return how many clients a share of the present ones is: at least one if any is present.

    >>> cohort_size(0.3, 20), cohort_size(0.01, 20), cohort_size(0.3, 0)
    (6, 1, 0)
    """
    return min(num_present, max(1, round(share * num_present)))


def last_known(roster: Roster, name: str) -> Floats:
    """Return (N,) the last number that each client sent under `name`; nan if it sent none.

    >>> known = {"loss": np.array([0.5, np.nan])}
    >>> roster = Roster(0, np.arange(2), np.ones(2), np.zeros(2, int), known)
    >>> last_known(roster, "loss").tolist()
    [0.5, nan]
    """
    values = roster.known.get(name)
    if values is None:
        return np.full(roster.num_clients, np.nan)
    return values.reshape(roster.num_clients, -1)[:, 0]
