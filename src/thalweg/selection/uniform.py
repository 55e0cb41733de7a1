from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Ints, Roster
from thalweg.selection.base import cohort_size


@dataclass(frozen=True)
class Uniform:
    """A fixed fraction of those who are here, each equally likely; at least one if anybody is."""

    fraction: float = 0.3

    def __post_init__(self) -> None:
        check_ranges(self, fraction="(0, 1]")

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        size = cohort_size(self.fraction, len(roster.present))
        return np.sort(rng.choice(roster.present, size, replace=False))
