"""All clients of an embedded run: their states, who is here, who has changed."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from thalweg.core.talk import Look, Told
from thalweg.core.trees import Tree, like
from thalweg.core.types import Floats32, Ints, Roster, Supplies
from thalweg.recipes.client import ClientRound, Clients, ClientState, Heard
from thalweg.streams import supplies_of


class Crowd:
    """The clients' states. Nobody costs anything before taking part for the first time."""

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self.states: dict[int, ClientState] = {}
        self.changed: set[int] = set()  # since the last checkpoint

    def roster(self, rnd: int) -> Roster:
        world = self.clients.world
        nobody = np.zeros(world.num_clients, dtype=np.int64)
        return Roster(rnd, world.here(rnd), world.availability, nobody, supplies=self._supplies)

    @cached_property
    def _supplies(self) -> Supplies:
        return supplies_of(self.clients.world)

    def standing(self, client: int, rnd: int, look: Look | None = None) -> ClientState:
        """The client as it is before round `rnd`; changes nothing."""
        state = self.states.get(client) or self.clients.newborn(client)
        return self.clients.caught_up(client, state, rnd, look)

    def keep(self, client: int, state: ClientState) -> None:
        """Remember a client's state, if it is another one than before."""
        if self.states.get(client) is not state:
            self.states[client] = state
            self.changed.add(client)

    def enter(
        self, client: int, rnd: int, look: Look | None = None, heard: Heard | None = None
    ) -> ClientRound:
        state = self.states.get(client)
        if state is None:
            state = self.clients.newborn(client)
        return self.clients.enter(client, state, rnd, look, heard)

    def newest(self, client: int, state: ClientState) -> Ints:
        """Rows that arrive first in a client's next round, or what is in memory if none do."""
        _, arrivals = self.clients.world.emit(state.stream, client, state.lived)
        if arrivals and len(arrivals[0].items):
            return arrivals[0].items
        return state.rows.astype(np.int64)

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


def heard_by(told: Told | None, row: int) -> Heard:
    """What one client is told: its row of every message."""
    return {
        stage: {name: words[row] for name, words in messages.items()}
        for stage, messages in (told or {}).items()
    }


def side_by_side(said: list[dict[str, Floats32]]) -> dict[str, Floats32]:
    """Messages of all clients as matrices (K, E); an empty one counts as zeros."""
    matrices = {}
    for name in said[0]:
        length = max(len(words[name]) for words in said)
        rows = [
            words[name] if len(words[name]) else np.zeros(length, dtype=np.float32)
            for words in said
        ]
        matrices[name] = np.stack(rows).astype(np.float32)
    return matrices
