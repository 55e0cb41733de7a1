from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.errors import require
from thalweg.core.types import Ints, Roster


@dataclass(frozen=True)
class Uniform:
    """A fixed fraction of those who are here, each equally likely; at least one if anybody is."""

    fraction: float = 0.3

    def __post_init__(self) -> None:
        require(0 < self.fraction <= 1, f"fraction must lie in (0, 1], got {self.fraction}.")

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        if len(roster.here) == 0:
            return roster.here
        size = max(1, round(self.fraction * len(roster.here)))
        return np.sort(rng.choice(roster.here, size, replace=False))
