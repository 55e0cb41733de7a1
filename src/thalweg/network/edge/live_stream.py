"""What arrives at a device, as a stream: whatever was received before somebody asked."""

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
    """The samples that were marked for a lived round are what arrives in it, spread over its ticks in order.

    Marks are on disk before anybody asks, so that the same question has the same answer, in another process too.
    What is not marked has not arrived yet, and what is neither is not known: there is one latent state.
    """

    inbox: Inbox
    ticks: int
    num_classes: int
    size: int  # samples that the client can hold
    rounds: int  # of the run
    collects_when_absent: bool = False  # the collector does that, by the client's own clock

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
        """A client starts with nothing."""
        return None, Arrival(np.empty(0, dtype=np.int64), 0)

    def emit(self, state: None, client: int, lived: int) -> tuple[None, list[Arrival]]:
        return None, split_into_ticks(self.inbox.marked_slots(lived), self.ticks)
