from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Ints, Roster


@dataclass(frozen=True)
class Available:
    """Everyone who is here takes part: the world's availability alone decides."""

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present
