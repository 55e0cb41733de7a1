"""What every selection rule promises."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from thalweg.core.types import Ints, Roster


class Selection(Protocol):
    """Chooses the cohort of a round. Any object of this shape will do."""

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        """Ids of the chosen clients: some of ``roster.here``, none twice; possibly nobody."""
        ...
