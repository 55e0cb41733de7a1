from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats, Ints, MemoryContext


@dataclass(frozen=True)
class Replace:
    """Replace the whole memory by the samples that have just arrived.

    The memory of FedOGD and of other online methods without rehearsal. If more samples arrive than
    fit, the newest stay. A tick without arrivals leaves the memory unchanged.

    >>> from thalweg.memory import make_context
    >>> context = make_context(capacity=4, held=4, num_new=2)
    >>> Replace().keep(None, context, np.random.default_rng(0))[1].tolist()
    [4, 5]
    """

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        if context.num_new == 0:
            return None, np.arange(context.held)
        end = context.held + context.num_new
        return None, np.arange(max(context.held, end - context.capacity), end)

    def predict_renewal(self, state: None, context: MemoryContext) -> Floats:
        return np.full(len(context.outlook.probs), 1.0 if context.num_new else 0.0)
