from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats, Ints, MemoryContext


@dataclass(frozen=True)
class Fifo:
    """First in, first out: keep the `capacity` most recent samples.

    The oldest samples leave first. Suited to streams whose past is no longer representative.
    Positions are in order of arrival, so that the policy needs no state.

    >>> from thalweg.memory import make_context
    >>> context = make_context(capacity=4, held=4, num_new=2)
    >>> Fifo().keep(None, context, np.random.default_rng(0))[1].tolist()
    [2, 3, 4, 5]
    """

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        end = context.held + context.num_new
        return None, np.arange(max(0, end - context.capacity), end)

    def predict_renewal(self, state: None, context: MemoryContext) -> Floats:
        share = min(1.0, context.num_new / context.capacity)
        return np.full(len(context.outlook.probs), share)
