from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints, MemoryContext


class ReservoirState(NamedTuple):
    """The number of samples that have arrived so far, initial samples included."""

    seen: int


@dataclass(frozen=True)
class Reservoir:
    r"""Keep a uniform random sample of everything that has arrived so far (reservoir sampling).

    Sample number :math:`t+1` enters with probability :math:`\min(1, n/(t+1))` and overwrites a slot
    chosen uniformly. At any time every sample so far is in memory with the same probability
    :math:`\min(1, n/t)`. Old distributions fade only as fast as the stream grows; use `Fifo` if the
    past should be forgotten.

    Symbols, Vitter (1985), Algorithm R -> here
        n  size of the reservoir  -> MemoryContext.capacity
        t  records processed      -> ReservoirState.seen

    After 100 samples, 100 more replace half of the memory on average:

    >>> from thalweg.memory import make_context
    >>> context = make_context(capacity=10, held=10, num_new=100)
    >>> Reservoir().predict_renewal(ReservoirState(seen=100), context).tolist()
    [0.5]
    >>> state, kept = Reservoir().keep(ReservoirState(100), context, np.random.default_rng(0))
    >>> state.seen, len(kept)
    (200, 10)
    """

    def init(self, capacity: int, held: int) -> ReservoirState:
        return ReservoirState(seen=held)

    def keep(
        self, state: ReservoirState, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[ReservoirState, Ints]:
        before = state.seen + np.arange(
            context.num_new
        )  # (num_new,) samples seen before each new one
        slots = np.where(before < context.capacity, before, rng.integers(0, before + 1))
        kept = np.full(context.capacity, -1)
        kept[: context.held] = np.arange(context.held)
        enters = np.flatnonzero(slots < context.capacity)
        # If two new samples draw the same slot, the later one stays: search from the end.
        slot, last = np.unique(slots[enters][::-1], return_index=True)
        kept[slot] = context.held + enters[::-1][last]
        return ReservoirState(state.seen + context.num_new), kept[kept >= 0]

    def predict_renewal(self, state: ReservoirState, context: MemoryContext) -> Floats:
        total = state.seen + context.num_new
        share = min(1.0, context.num_new / max(total, 1))
        return np.full(len(context.outlook.probs), share)
