from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats, Ints, MemoryContext


@dataclass(frozen=True)
class Fifo:
    """Keep the most recent samples; the oldest leave first.

    Positions are in order of arrival, so the policy needs no memory of its own.
    """

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        end = intake.held + intake.num_new
        return None, np.arange(max(0, end - intake.capacity), end)

    def predict_renewal(self, state: None, intake: MemoryContext) -> Floats:
        share = min(1.0, intake.num_new / intake.capacity)
        return np.full(len(intake.outlook.probs), share)
