"""A network in one process: every call goes through bytes, and not every letter arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from thalweg.core.types import Arrival, Floats, Roster, Supplies, Supply
from thalweg.data import Dataset
from thalweg.engine.building import crowd_of, viewed
from thalweg.engine.crowd import roster_of
from thalweg.engine.node import Node
from thalweg.engine.plan import Plan, plan_from_toml, plan_to_toml
from thalweg.engine.remote import RemoteNode
from thalweg.engine.single import SingleTrainer
from thalweg.recipes.client import Clients, ClientState
from thalweg.recipes.correspondence import Correspondence, Letter
from thalweg.recipes.messages import Hello, Order, Question
from thalweg.recipes.wire import Terms, errand_from, from_bytes
from thalweg.streams import StateBook, World

Fate = Callable[[Order | Question], str]  # what becomes of a message; see `BytesFederation`


def arrives(message: Order | Question) -> str:
    return "arrives"


class OwnStream:
    """What a device has: its own stream, and what is common knowledge."""

    def __init__(self, world: World, client: int) -> None:
        self._world, self._own = world, client
        self.ticks: int = world.ticks
        self.book: StateBook = world.book
        self.collects_when_absent: bool = world.collects_when_absent

    def capacity(self, client: int) -> int:
        return self._of(client).capacity(client)

    def supply(self, client: int) -> Supply:
        return self._of(client).supply(client)

    def truth(self, client: int) -> Floats:
        return self._of(client).truth(client)

    def begin(self, client: int) -> tuple[Any, Arrival]:
        return self._of(client).begin(client)

    def emit(self, state: Any, client: int, lived: int) -> tuple[Any, list[Arrival]]:
        return self._of(client).emit(state, client, lived)

    def _of(self, client: int) -> World:
        assert client == self._own, f"client {self._own} reads the stream of {client}"
        return self._world


class BytesFederation(Correspondence):
    """Clients that are bytes between any two messages, reached in another order every time.

    The fate of an order or a question:
        arrives   and so does what comes back
        lost      on its way, so that the client never hears of it
        dropped   what comes back is lost
        late      what comes back arrives when the next letters are sent
        twice     what comes back arrives two times
        damaged   what comes back is cut off
        stolen    what comes back arrives under the name of another client
    """

    def __init__(self, plan: Plan, data: Dataset, fate: Fate = arrives) -> None:
        net = plan.scenario.net.build(data.input_shape, data.num_classes)
        self.crowd, self.fate = crowd_of(plan, data, net.num_params), fate
        self.world = self.crowd.world
        super().__init__(Terms(plan.recipe, net.num_params), self._carry, self._who_is_here)
        self.nodes = [_node(plan, data, self.world, n) for n in range(self.world.num_clients)]
        self.stored: dict[int, bytes] = {}  # all that clients remember
        self._late: list[Letter] = []
        self._rng = np.random.default_rng(0)
        self._supplies = _supplies([node.hello() for node in self.nodes], self._terms)

    def state(self, client: int) -> ClientState:
        """What a client remembers now."""
        node = self.nodes[client]
        return (
            node.restored(self.stored[client]).client
            if client in self.stored
            else node.node.newborn()
        )

    def _who_is_here(self, rnd: int) -> Roster:
        return roster_of(self.world, self.crowd.timetable, rnd, self._supplies)

    def _carry(self, letters: Iterable[Letter]) -> Iterator[Letter]:
        late, self._late = self._late, []
        letters = list(letters)
        back = [
            letter
            for place in self._rng.permutation(len(letters))
            for letter in self._sent(*letters[place])
        ]
        back += late
        for place in self._rng.permutation(len(back)):
            yield back[place]

    def _sent(self, client: int, payload: bytes) -> list[Letter]:
        """One letter to a client, and what comes back of it at once."""
        fate = self.fate(errand_from(payload, self._terms))
        if fate == "lost":
            return []
        node, stored = self.nodes[client], self.stored.get(client)
        before = node.newborn() if stored is None else node.restored(stored)
        after, answer = node.handle(before, payload)
        self.stored[client] = node.stored(after)
        if fate == "late":
            self._late.append((client, answer))
        return {
            "dropped": [],
            "late": [],
            "twice": [(client, answer), (client, answer)],
            "damaged": [(client, answer[:-9])],
            "stolen": [((client + 1) % len(self.nodes), answer)],
        }.get(fate, [(client, answer)])


def _node(plan: Plan, data: Dataset, world: World, client: int) -> RemoteNode:
    """A device: it knows the plan as text, its own stream, and its data."""
    plan = plan_from_toml(plan_to_toml(plan), "the plan")
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    stream = OwnStream(world, client)
    data = viewed(data, world)
    labels = data.all_labels("train")
    clients = Clients(plan.recipe, stream, labels, plan.local, plan.seed, net.num_params)
    recipe, augment = plan.recipe, plan.scenario.augment
    trainer = SingleTrainer(net, recipe.objective, plan.local, data, recipe.mirror, augment)
    node = Node(clients, client, trainer, plan.scenario.prequential)
    return RemoteNode(node, Terms(recipe, net.num_params))


def _supplies(hellos: list[bytes], terms: Terms) -> Supplies:
    came = sorted(
        (from_bytes(hello, terms, Hello) for hello in hellos), key=lambda hello: hello.client
    )
    total, is_historical, rounds = zip(*(hello.supply for hello in came), strict=True)
    return Supplies(np.array(total, float), np.array(is_historical), np.array(rounds, float))


@lru_cache(maxsize=4)
def load(kind: Any, seed: int) -> Dataset:
    """A data set, once for all tests."""
    data: Dataset = kind.load(None, seed)
    return data
