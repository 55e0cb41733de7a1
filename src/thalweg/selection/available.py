from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Ints, Roster


@dataclass(frozen=True)
class Available:
    """Choose all present clients: the availability of the world decides which take part.

    >>> present, availability, times_present = np.array([1, 3]), np.ones(4), np.zeros(4, int)
    >>> roster = Roster(0, present, availability, times_present)
    >>> Available().choose(roster, np.random.default_rng(0)).tolist()
    [1, 3]
    """

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present
