"""A network in one process: every call goes through bytes, and not every letter arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from thalweg.core.types import Arrival, Floats, Roster, Supplies, Supply
from thalweg.data import Dataset
from thalweg.engine.builders import apply_views, make_client_pool
from thalweg.engine.client_pool import make_roster
from thalweg.engine.node import Node
from thalweg.engine.plan import Plan, plan_from_toml, plan_to_toml
from thalweg.engine.single import SingleTrainer
from thalweg.federation.client_state import ClientProgram, ClientState
from thalweg.federation.messages import Hello, SurveyRequest, TrainRequest
from thalweg.network.remote_federation import Packet, RemoteFederation
from thalweg.network.remote_node import RemoteNode
from thalweg.network.wire import MessageSchema, from_bytes, read_request
from thalweg.streams import StateTable, World

Fate = Callable[
    [TrainRequest | SurveyRequest], str
]  # what becomes of a message; see `BytesFederation`


def deliver_all(message: TrainRequest | SurveyRequest) -> str:
    return "arrives"


class SingleClientStream:
    """What a device has: its own stream, and what is common knowledge."""

    def __init__(self, world: World, client: int) -> None:
        self._world, self._own = world, client
        self.ticks: int = world.ticks
        self.state_table: StateTable = world.state_table
        self.collects_when_absent: bool = world.collects_when_absent

    def capacity(self, client: int) -> int:
        return self._of(client).capacity(client)

    def supply(self, client: int) -> Supply:
        return self._of(client).supply(client)

    def true_state_probs(self, client: int) -> Floats:
        return self._of(client).true_state_probs(client)

    def begin(self, client: int) -> tuple[Any, Arrival]:
        return self._of(client).begin(client)

    def emit(self, state: Any, client: int, lived: int) -> tuple[Any, list[Arrival]]:
        return self._of(client).emit(state, client, lived)

    def _of(self, client: int) -> World:
        assert client == self._own, f"client {self._own} reads the stream of {client}"
        return self._world


class BytesFederation(RemoteFederation):
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

    def __init__(self, plan: Plan, data: Dataset, fate: Fate = deliver_all) -> None:
        net = plan.scenario.net.build(data.input_shape, data.num_classes)
        self.client_pool, self.fate = make_client_pool(plan, data, net.num_params), fate
        self.world = self.client_pool.world
        super().__init__(MessageSchema(plan.recipe, net.num_params), self._exchange, self._roster)
        self.nodes = [_node(plan, data, self.world, n) for n in range(self.world.num_clients)]
        self.stored: dict[int, bytes] = {}  # all that clients remember
        self._late: list[Packet] = []
        self._rng = np.random.default_rng(0)
        self._supplies = _supplies([node.hello() for node in self.nodes], self._schema)

    def state(self, client: int) -> ClientState:
        """What a client remembers now."""
        node = self.nodes[client]
        return (
            node.restore_state(self.stored[client]).client
            if client in self.stored
            else node.node.new_client()
        )

    def _roster(self, rnd: int) -> Roster:
        return make_roster(self.world, self.client_pool.timetable, rnd, self._supplies)

    def _exchange(self, letters: Iterable[Packet]) -> Iterator[Packet]:
        late, self._late = self._late, []
        letters = list(letters)
        back = [
            letter
            for place in self._rng.permutation(len(letters))
            for letter in self._deliver(*letters[place])
        ]
        back += late
        for place in self._rng.permutation(len(back)):
            yield back[place]

    def _deliver(self, client: int, payload: bytes) -> list[Packet]:
        """One letter to a client, and what comes back of it at once."""
        fate = self.fate(read_request(payload, self._schema))
        if fate == "lost":
            return []
        node, stored = self.nodes[client], self.stored.get(client)
        before = node.new_client() if stored is None else node.restore_state(stored)
        after, answer = node.handle(before, payload)
        self.stored[client] = node.serialize_state(after)
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
    stream = SingleClientStream(world, client)
    data = apply_views(data, world)
    labels = data.all_labels("train")
    clients = ClientProgram(plan.recipe, stream, labels, plan.local, plan.seed, net.num_params)
    recipe, augment = plan.recipe, plan.scenario.augment
    trainer = SingleTrainer(net, recipe.objective, plan.local, data, recipe.geometry, augment)
    node = Node(clients, client, trainer, plan.scenario.prequential)
    return RemoteNode(node, MessageSchema(recipe, net.num_params))


def _supplies(hellos: list[bytes], terms: MessageSchema) -> Supplies:
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
