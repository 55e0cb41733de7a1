"""What a server knows of clients that are somewhere else."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Ints, Updates
from thalweg.engine.client_pool import ClientPool


class RemoteClientPool(ClientPool):
    """No states here, only how often each client has taken part, as far as was heard.

    Where streams stand still while their client is away, that is the clock by which drifts are judged.
    """

    def __init__(self, client_pool: ClientPool) -> None:
        super().__init__(client_pool.clients, client_pool.world, client_pool.timetable)
        self.rounds_participated = np.zeros(client_pool.world.num_clients, dtype=np.int64)

    def clock(self, rnd: int, is_over: bool = True) -> int | Ints:
        if self.world.collects_when_absent:
            return rnd
        return np.maximum(self.rounds_participated - int(is_over), 0)

    def count_participation(self, updates: Updates, rnd: int) -> None:
        """Count what came in a round, late replies too; one that trained several models has lived once."""
        rounds = rnd - updates.staleness(rnd)
        for client, _ in set(zip(updates.clients.tolist(), rounds.tolist(), strict=True)):
            self.rounds_participated[client] += 1
