"""What every selection rule promises, and how many clients a share of them is."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from thalweg.core.types import Floats, Ints, Roster


class Selection(Protocol):
    """Chooses the cohort of a round. Any object of this shape will do.

    A rule may also ask clients before it chooses, keep a tally at each, or have something to say about
    the round: `Surveys`, `CountsLabels` and `ExtraMetrics` in `core.talk`.
    """

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        """Ids of the chosen clients: some of ``roster.present``, none twice; possibly nobody."""
        ...


def cohort_size(share: float, num_present: int) -> int:
    """A share of those who are here, at least one if anybody is.

    >>> cohort_size(0.3, 20), cohort_size(0.01, 20), cohort_size(0.3, 0)
    (6, 1, 0)
    """
    return min(num_present, max(1, round(share * num_present)))


def last_known(roster: Roster, name: str) -> Floats:
    """(N,) the last number every client sent under a name; nan: none yet."""
    values = roster.known.get(name)
    if values is None:
        return np.full(roster.num_clients, np.nan)
    return values.reshape(roster.num_clients, -1)[:, 0]
