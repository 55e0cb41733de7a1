from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats, Roster, Updates


@dataclass(frozen=True)
class BySamples:
    """An update counts in proportion to the samples its client holds.

    If nobody holds any, nobody has learnt anything, and all count the same.
    """

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        total = updates.num_samples.sum()
        if total == 0:
            return np.full(len(updates), 1 / len(updates))
        shares: Floats = updates.num_samples / total
        return shares
