"""The received samples of a device as a stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thalweg.core.types import Arrival, Floats, Supply
from thalweg.network.edge.inbox import Inbox
from thalweg.streams import StateTable
from thalweg.streams.live import make_live_states, make_live_supply, split_into_ticks


@dataclass(frozen=True, eq=False)
class LiveStream:
    """Arrivals of a round: the samples marked for it, in order, spread over its ticks.

    Marks are on disk before the stream is read, so that the result is the same in every process.
    There is one latent state.
    """

    inbox: Inbox
    ticks: int
    num_classes: int
    size: int  # number of samples that the client can store
    rounds: int  # length of the run
    collects_when_absent: bool = False  # handled by the collector with the client's own clock

    @cached_property
    def state_table(self) -> StateTable:
        return make_live_states(self.num_classes)

    def capacity(self, client: int) -> int:
        return self.size

    def supply(self, client: int) -> Supply:
        return make_live_supply(self.rounds)

    def true_state_probs(self, client: int) -> Floats:
        return np.ones(1)

    def begin(self, client: int) -> tuple[None, Arrival]:
        """A client starts without samples."""
        return None, Arrival(np.empty(0, dtype=np.int64), 0)

    def emit(self, state: None, client: int, stream_round: int) -> tuple[None, list[Arrival]]:
        return None, split_into_ticks(self.inbox.marked_slots(stream_round), self.ticks)
