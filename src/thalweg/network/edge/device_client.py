"""The client that lives on a device: made once it is invited, and the same again after a restart."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from thalweg.core.errors import BadMessage
from thalweg.engine.builders import apply_views, make_client_program
from thalweg.engine.node import Node
from thalweg.engine.plan import Plan
from thalweg.engine.single import SingleTrainer
from thalweg.network.edge.socket import compute_digest
from thalweg.network.edge.store import Store
from thalweg.network.handshake import Invitation
from thalweg.network.remote_node import RemoteNode
from thalweg.network.wire import MessageSchema


@dataclass(frozen=True)
class DeviceOptions:
    """What a device has, and says when it joins."""

    data: str = "replay"  # where its samples come from; replay: the scenario's own, at this client
    data_dir: Path | None = None  # where data sets are found
    capacity: int | None = None  # samples that it holds; none: as the scenario says
    queue: int | None = None  # samples on the disk beside those in memory; none: the usual number
    allows_own_code: bool = False  # may a plan name classes of this device's own Python files?


class DeviceClient(Protocol):
    """A client at home: letters in, letters out."""

    @property
    def terms(self) -> MessageSchema: ...

    def hello(self) -> bytes:
        """What it says when it is invited."""
        ...

    def handle(self, payload: bytes) -> bytes:
        """Carry out an errand, once. State and reply are on the disk before this returns."""
        ...

    def close(self) -> None: ...


class ReplayClient:
    """A client whose samples are those of its scenario, as in a simulation: it gives the same numbers."""

    def __init__(self, remote: RemoteNode, store: Store) -> None:
        self._remote, self._store, self._turn = remote, store, threading.Lock()
        stored = store.state()
        self._state = remote.new_client() if stored is None else remote.restore_state(stored)
        self.terms = remote.schema

    def hello(self) -> bytes:
        return self._remote.hello()

    def handle(self, payload: bytes) -> bytes:
        """The same letter twice has the same reply, and nothing is trained twice: the first may have been lost."""
        digest = compute_digest(payload)
        with self._turn:
            known = self._store.find_response(digest)
            if known is not None:
                return known
            request = self._remote.read_request(payload)
            state, response = self._remote.execute(self._state, request)
            self._store.commit(self._remote.serialize_state(state), digest, response, request.rnd)
            self._state = state
            return response

    def close(self) -> None:
        """Nothing to let go of: every change is on the disk."""


def make_replay_client(
    plan: Plan, invitation: Invitation, store: Store, data_dir: Path | None
) -> ReplayClient:
    """The client of a scenario's world that an invitation names."""
    scenario, recipe = plan.scenario, plan.recipe
    data = scenario.data.load(data_dir, plan.seed)
    net = scenario.net.build(data.input_shape, data.num_classes)
    check_shapes(invitation, data.input_shape, data.num_classes, net.num_params)
    clients, world = make_client_program(plan, data, net.num_params)
    if invitation.client >= world.num_clients:
        raise BadMessage(
            f"the server has a client {invitation.client}, this client's plan has {world.num_clients} of "
            "them, counted from 0."
        )
    trainer = SingleTrainer.from_plan(plan, net, apply_views(data, world))
    node = Node(clients, invitation.client, trainer, scenario.prequential)
    return ReplayClient(RemoteNode(node, MessageSchema(recipe, net.num_params)), store)


def check_shapes(
    invitation: Invitation, shape: tuple[int, ...], num_classes: int, num_params: int
) -> None:
    """Refuse a run whose samples or models are of another form than ours."""
    theirs = (tuple(invitation.shape), invitation.num_classes, invitation.num_params)
    ours = (tuple(shape), num_classes, num_params)
    for what, there, here in zip(
        ("samples of shape", "classes:", "model parameters:"), theirs, ours, strict=True
    ):
        if there != here:
            raise BadMessage(
                f"the server has {what} {there}, this client has {what} {here}. Do both sides have the "
                "same data?"
            )
