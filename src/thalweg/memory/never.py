from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats, Ints, MemoryContext


@dataclass(frozen=True)
class Never:
    """Keep what came first: once the memory is full, nothing ever leaves it.

    The memory of a client with a static data set.
    """

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        return None, np.arange(min(intake.held + intake.num_new, intake.capacity))

    def predict_renewal(self, state: None, intake: MemoryContext) -> Floats:
        free = intake.capacity - intake.held
        share = min(free, intake.num_new) / intake.capacity
        return np.full(len(intake.outlook.probs), share)
