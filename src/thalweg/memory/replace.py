from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats, Ints, MemoryContext


@dataclass(frozen=True)
class Replace:
    """Keep only what has just arrived: no past at all.

    The memory of FedOGD. If more arrives than fits, the newest samples stay; in a tick without any
    arrival the memory stays as it is.
    """

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        if intake.num_new == 0:
            return None, np.arange(intake.held)
        end = intake.held + intake.num_new
        return None, np.arange(max(intake.held, end - intake.capacity), end)

    def predict_renewal(self, state: None, intake: MemoryContext) -> Floats:
        return np.full(len(intake.outlook.probs), 1.0 if intake.num_new else 0.0)
