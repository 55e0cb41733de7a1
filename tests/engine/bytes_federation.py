"""A network in one process: all messages are bytes, and some of them are lost or damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from thalweg.core.noise import SimulatedNoise
from thalweg.core.types import Arrival, Floats, Floats32, Ints, Roster, Supplies, Supply
from thalweg.data import Dataset, Part
from thalweg.engine.builders import apply_views, make_client_pool
from thalweg.engine.client_pool import make_roster
from thalweg.engine.node import Node
from thalweg.engine.plan import Plan, plan_from_toml, plan_to_toml
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import one_thread
from thalweg.engine.task import make_net
from thalweg.federation.client_state import ClientProgram, ClientState
from thalweg.federation.messages import Hello, SurveyRequest, TrainRequest
from thalweg.network.remote_federation import Packet, RemoteFederation
from thalweg.network.remote_node import RemoteNode
from thalweg.network.wire import MessageSchema, from_bytes, read_request
from thalweg.streams import HasViews, StateTable, World

# Chooses what happens to a message; see `BytesFederation`.
Fate = Callable[[TrainRequest | SurveyRequest], str]


def deliver_all(message: TrainRequest | SurveyRequest) -> str:
    return "arrives"


class SingleClientStream:
    """The world as a device sees it: its own stream, and values that all clients share."""

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

    def emit(self, state: Any, client: int, stream_round: int) -> tuple[Any, list[Arrival]]:
        return self._of(client).emit(state, client, stream_round)

    def _of(self, client: int) -> World:
        assert client == self._own, f"client {self._own} reads the stream of {client}"
        return self._world


class BytesFederation(RemoteFederation):
    """Clients whose states are bytes between messages, called in a random order.

    The fate of a request is one of:
        arrives   the request and its response arrive
        lost      the request is lost: the client does nothing
        dropped   the response is lost
        late      the response arrives with those of the next requests
        twice     the response arrives twice
        damaged   the response is truncated
        stolen    the response arrives under the name of another client
    """

    def __init__(self, plan: Plan, data: Dataset, fate: Fate = deliver_all) -> None:
        net = make_net(plan.scenario, data)
        self.client_pool, self.fate = make_client_pool(plan, data, net.num_params), fate
        self.world = self.client_pool.world
        self._trainer = SingleTrainer.from_plan(plan, net, apply_views(data, self.world))
        schema = MessageSchema(plan.recipe, net.num_params, data.task == "regression")
        super().__init__(schema, self._transfer, self._roster)
        self.nodes = [_make_node(plan, data, self.world, n) for n in range(self.world.num_clients)]
        self.stored: dict[int, bytes] = {}  # client -> its state
        self._delayed: list[Packet] = []
        self._rng = np.random.default_rng(0)
        self._supplies = _read_supplies([node.hello() for node in self.nodes], self._schema)

    def state(self, client: int) -> ClientState:
        """The current state of a client."""
        node = self.nodes[client]
        return (
            node.restore_state(self.stored[client]).client
            if client in self.stored
            else node.node.new_client()
        )

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None
    ) -> tuple[Ints, Floats32]:
        with one_thread():
            return self._trainer.predict_many(models, part, rows)

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None) -> Floats32:
        with one_thread():
            return self._trainer.scores_many(models, part, rows)

    def close(self) -> None:
        """Nothing to close."""

    def true_concepts(self, rnd: int) -> Ints:
        """Return the ground truth, which a network does not have, for tests of the oracle bank."""
        if not isinstance(self.world, HasViews):
            return np.zeros(self.world.num_clients, dtype=np.int64)
        return self.world.concepts_at(rnd)

    def _roster(self, rnd: int) -> Roster:
        return make_roster(self.world, self.client_pool.timetable, rnd, self._supplies)

    def _transfer(self, requests: Iterable[Packet]) -> Iterator[Packet]:
        delayed, self._delayed = self._delayed, []
        requests = list(requests)
        responses = [
            response
            for index in self._rng.permutation(len(requests))
            for response in self._deliver(*requests[index])
        ]
        responses += delayed
        for index in self._rng.permutation(len(responses)):
            yield responses[index]

    def _deliver(self, client: int, payload: bytes) -> list[Packet]:
        """Deliver one request to a client and return the responses that arrive at once."""
        fate = self.fate(read_request(payload, self._schema))
        if fate == "lost":
            return []
        node, stored = self.nodes[client], self.stored.get(client)
        before = node.new_client() if stored is None else node.restore_state(stored)
        after, answer = node.handle(before, payload)
        self.stored[client] = node.serialise_state(after)
        if fate == "late":
            self._delayed.append((client, answer))
        return {
            "dropped": [],
            "late": [],
            "twice": [(client, answer), (client, answer)],
            "damaged": [(client, answer[:-9])],
            "stolen": [((client + 1) % len(self.nodes), answer)],
        }.get(fate, [(client, answer)])


def _make_node(plan: Plan, data: Dataset, world: World, client: int) -> RemoteNode:
    """Make the node of a device from the plan as text, its own stream and the data."""
    plan = plan_from_toml(plan_to_toml(plan), "the plan")
    net = make_net(plan.scenario, data)
    stream = SingleClientStream(world, client)
    data = apply_views(data, world)
    labels = data.all_classes("train")
    clients = ClientProgram(
        plan.recipe,
        stream,
        labels,
        plan.local,
        plan.seed,
        net.num_params,
        numbers=data.all_labels("train") if data.task == "regression" else None,
        noise=SimulatedNoise(),  # the tests compare with simulations
    )
    trainer = SingleTrainer.from_plan(plan, net, data)
    node = Node(clients, client, trainer, plan.scenario.prequential)
    schema = MessageSchema(plan.recipe, net.num_params, data.task == "regression")
    return RemoteNode(node, schema)


def _read_supplies(hellos: list[bytes], schema: MessageSchema) -> Supplies:
    messages = [from_bytes(hello, schema, Hello) for hello in hellos]
    messages.sort(key=lambda hello: hello.client)
    total, is_historical, rounds = zip(*(hello.supply for hello in messages), strict=True)
    return Supplies(np.array(total, float), np.array(is_historical), np.array(rounds, float))


@lru_cache(maxsize=4)
def load(kind: Any, seed: int) -> Dataset:
    """Load a data set, once for all tests."""
    data: Dataset = kind.load(None, seed)
    return data
