"""What a server knows of clients that are somewhere else."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Ints, Updates
from thalweg.engine.crowd import Crowd


class AbsentCrowd(Crowd):
    """No states here, only how often each client has taken part, as far as was heard.

    Where streams stand still while their client is away, that is the clock by which drifts are judged.
    """

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(crowd.clients, crowd.world, crowd.timetable)
        self.lived = np.zeros(crowd.world.num_clients, dtype=np.int64)

    def clock(self, rnd: int, is_over: bool = True) -> int | Ints:
        if self.world.collects_when_absent:
            return rnd
        return np.maximum(self.lived - int(is_over), 0)

    def hear(self, updates: Updates, rnd: int) -> None:
        """Count what came in a round, late replies too; one that trained several models has lived once."""
        rounds = rnd - updates.staleness(rnd)
        for client, _ in set(zip(updates.clients.tolist(), rounds.tolist(), strict=True)):
            self.lived[client] += 1
