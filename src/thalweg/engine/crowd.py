"""All clients of an embedded run: their states, who is here, who has changed."""

from __future__ import annotations

import numpy as np

from thalweg.core.trees import Tree, like
from thalweg.core.types import Ints, Roster
from thalweg.recipes.client import ClientRound, Clients, ClientState


class Crowd:
    """The clients' states. Nobody costs anything before taking part for the first time."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.states: dict[int, ClientState] = {}
        self.changed: set[int] = set()  # since the last checkpoint

    def roster(self, rnd: int) -> Roster:
        world = self.clients.world
        nobody = np.zeros(world.num_clients, dtype=np.int64)
        return Roster(rnd, world.here(rnd), world.availability, nobody)

    def enter(self, client: int, rnd: int) -> ClientRound:
        state = self.states.get(client)
        if state is None:
            state = self.clients.newborn(client)
        return self.clients.enter(client, state, rnd)

    def leave(self, visit: ClientRound) -> None:
        self.states[visit.client] = visit.leave()
        self.changed.add(visit.client)

    def restore(self, trees: dict[int, Tree]) -> None:
        """Take states from a checkpoint; a newborn shows which types they had."""
        self.states = {
            client: like(self.clients.newborn(client), tree) for client, tree in trees.items()
        }
        self.changed = set()


def rows_to_test(visit: ClientRound, per_tick: int) -> Ints:
    """Rows that arrive in this round and are predicted before anybody learns from them."""
    arrived = [arrival.items[:per_tick] for arrival in visit.arrivals]
    return np.concatenate(arrived) if arrived else np.empty(0, dtype=np.int64)
