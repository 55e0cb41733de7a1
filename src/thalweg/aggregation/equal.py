from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats, Roster, Updates


@dataclass(frozen=True)
class Equal:
    """Every update counts the same."""

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        return np.full(len(updates), 1 / len(updates))
