"""All clients of an embedded run: their states, who is here, who has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from thalweg.core.talk import Look, Told
from thalweg.core.trees import Tree, like
from thalweg.core.types import Floats32, Ints, Roster, Survey
from thalweg.recipes.client import ClientRound, Clients, ClientState, Heard


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

    def enter(
        self, client: int, rnd: int, look: Look | None = None, heard: Heard | None = None
    ) -> ClientRound:
        state = self.states.get(client)
        if state is None:
            state = self.clients.newborn(client)
        return self.clients.enter(client, state, rnd, look, heard)

    def newest(self, client: int, rnd: int) -> Ints:
        """Rows that arrive first in round `rnd`, or what is in memory if none do; changes nothing."""
        world = self.clients.world
        state = self.states.get(client) or self.clients.newborn(client)
        stream, lived = state.stream, state.lived
        if world.collects_when_absent:
            while lived < rnd:
                stream, _ = world.emit(stream, client, lived)
                lived += 1
        _, arrivals = world.emit(stream, client, lived)
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


Predicts = Callable[[Floats32, Literal["train"], Ints], tuple[Ints, Floats32]]


def surveyed(
    crowd: Crowd, labels: Ints, predict: Predicts, clients: Ints, bank: Floats32, rnd: int
) -> Survey:
    """Every model of the bank on the newest data of some clients."""
    rows = [crowd.newest(client, rnd) for client in clients.tolist()]
    sizes = np.array([len(mine) for mine in rows], dtype=np.int64)
    losses, accuracies = np.full((2, len(clients), len(bank)), np.nan)
    asked = np.concatenate(rows)
    owner = np.repeat(np.arange(len(clients)), sizes)
    has_data = sizes > 0
    for model, params in enumerate(bank):
        predicted, each = predict(params, "train", asked)
        for table, values in ((losses, each), (accuracies, predicted == labels[asked])):
            sums = np.bincount(owner, weights=values, minlength=len(clients))
            table[has_data, model] = sums[has_data] / sizes[has_data]
    return Survey(losses, accuracies, sizes)


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
