from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Ints, MemoryContext
from thalweg.memory.base import renew, round_count


@dataclass(frozen=True)
class UniformRatio:
    """Renew the same fraction of the memory at every tick, whatever state the client is in.

    SFedPO without its sampling module, and the memory of every "original" host method in its
    modularity table: who is overwritten is drawn uniformly.
    """

    budget: float = 0.5
    stochastic_rounding: bool = False
    """Round the number of renewed samples at random, so that its mean is exact."""

    def __post_init__(self) -> None:
        check_ranges(self, budget="(0, 1]")

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        amount = self.budget * intake.capacity
        return None, renew(
            intake, round_count(amount, rng if self.stochastic_rounding else None), rng
        )

    def predict_renewal(self, state: None, intake: MemoryContext) -> Floats:
        share = min(self.budget, intake.num_new / intake.capacity)
        return np.full(len(intake.outlook.probs), share)
