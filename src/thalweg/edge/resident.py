"""The client that lives on a device: made once it is invited, and the same again after a restart."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from thalweg.core.errors import BadMessage
from thalweg.edge.socket import digest_of
from thalweg.edge.store import Store
from thalweg.engine.building import clients_of, viewed
from thalweg.engine.node import Node
from thalweg.engine.plan import Plan
from thalweg.engine.remote import RemoteNode
from thalweg.engine.single import SingleTrainer
from thalweg.recipes.joining import Invitation
from thalweg.recipes.wire import Terms


@dataclass(frozen=True)
class Means:
    """What a device has, and says when it joins."""

    data: str = "replay"  # where its samples come from; replay: the scenario's own, at this client
    data_dir: Path | None = None  # where data sets are found
    capacity: int | None = None  # samples that it holds; none: as the scenario says
    queue: int | None = None  # samples on the disk beside those in memory; none: the usual number
    takes_code: bool = False  # may a plan name classes of this device's own Python files?


class Resident(Protocol):
    """A client at home: letters in, letters out."""

    @property
    def terms(self) -> Terms: ...

    def hello(self) -> bytes:
        """What it says when it is invited."""
        ...

    def handle(self, letter: bytes) -> bytes:
        """Carry out an errand, once. State and reply are on the disk before this returns."""
        ...

    def close(self) -> None: ...


class Tenant:
    """A client whose samples are those of its scenario, as in a simulation: it gives the same numbers."""

    def __init__(self, remote: RemoteNode, store: Store) -> None:
        self._remote, self._store, self._turn = remote, store, threading.Lock()
        stored = store.state()
        self._state = remote.newborn() if stored is None else remote.restored(stored)
        self.terms = remote.terms

    def hello(self) -> bytes:
        return self._remote.hello()

    def handle(self, letter: bytes) -> bytes:
        """The same letter twice has the same reply, and nothing is trained twice: the first may have been lost."""
        digest = digest_of(letter)
        with self._turn:
            known = self._store.reply(digest)
            if known is not None:
                return known
            errand = self._remote.read(letter)
            state, reply = self._remote.carry_out(self._state, errand)
            self._store.commit(self._remote.stored(state), digest, reply, errand.rnd)
            self._state = state
            return reply

    def close(self) -> None:
        """Nothing to let go of: every change is on the disk."""


def tenant(plan: Plan, invitation: Invitation, store: Store, data_dir: Path | None) -> Tenant:
    """The client of a scenario's world that an invitation names."""
    scenario, recipe = plan.scenario, plan.recipe
    data = scenario.data.load(data_dir, plan.seed)
    net = scenario.net.build(data.input_shape, data.num_classes)
    check_form(invitation, data.input_shape, data.num_classes, net.num_params)
    clients, world = clients_of(plan, data, net.num_params)
    if invitation.client >= world.num_clients:
        raise BadMessage(
            f"the server has a client {invitation.client}, this client's plan has {world.num_clients} of "
            "them, counted from 0."
        )
    trainer = SingleTrainer(
        net, recipe.objective, plan.local, viewed(data, world), recipe.mirror, scenario.augment
    )
    node = Node(clients, invitation.client, trainer, scenario.prequential)
    return Tenant(RemoteNode(node, Terms(recipe, net.num_params)), store)


def check_form(
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
