from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.types import Floats, Ints, MemoryContext


class ReservoirState(NamedTuple):
    seen: int  # samples that have arrived so far


@dataclass(frozen=True)
class Reservoir:
    r"""Keep a uniform sample of everything that ever arrived.

    Sample number :math:`t+1` enters with probability :math:`n/(t+1)` and replaces a kept one chosen
    uniformly, so that at any time every sample so far is equally likely to be in memory. Old
    distributions fade only as fast as the stream grows; prefer `Fifo` if the past should be
    forgotten.

    Symbols, Vitter (1985), Algorithm R -> here
        n  size of the reservoir  -> Intake.capacity
        t  records processed      -> ReservoirState.seen
    """

    def init(self, capacity: int, held: int) -> ReservoirState:
        return ReservoirState(seen=held)

    def keep(
        self, state: ReservoirState, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[ReservoirState, Ints]:
        before = state.seen + np.arange(intake.num_new)  # (A,) seen before each sample
        slots = np.where(before < intake.capacity, before, rng.integers(0, before + 1))
        kept = np.full(intake.capacity, -1)
        kept[: intake.held] = np.arange(intake.held)
        enters = np.flatnonzero(slots < intake.capacity)
        # Later samples overwrite earlier ones: read the list backwards and keep first occurrences.
        slot, last = np.unique(slots[enters][::-1], return_index=True)
        kept[slot] = intake.held + enters[::-1][last]
        return ReservoirState(state.seen + intake.num_new), kept[kept >= 0]

    def predict_renewal(self, state: ReservoirState, intake: MemoryContext) -> Floats:
        total = state.seen + intake.num_new
        share = min(1.0, intake.num_new / max(total, 1))
        return np.full(len(intake.outlook.probs), share)
