from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats, Ints, MemoryContext


@dataclass(frozen=True)
class Never:
    """Fill the memory once, then never change it.

    Free slots are filled in order of arrival; later arrivals are dropped. This is the memory of a
    client with a static data set.

    >>> from thalweg.memory import make_context
    >>> context = make_context(capacity=4, held=3, num_new=2)
    >>> Never().keep(None, context, np.random.default_rng(0))[1].tolist()
    [0, 1, 2, 3]
    """

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        return None, np.arange(min(context.held + context.num_new, context.capacity))

    def predict_renewal(self, state: None, context: MemoryContext) -> Floats:
        free = context.capacity - context.held
        share = min(free, context.num_new) / context.capacity
        return np.full(len(context.outlook.probs), share)
