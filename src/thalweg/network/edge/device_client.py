"""The client on a device: created from an invitation, and again after a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

from thalweg.core.config import check_ranges, list_names, load_object
from thalweg.core.errors import ConfigError
from thalweg.core.noise import SystemNoise
from thalweg.core.registry import Registry
from thalweg.engine.builders import apply_views, make_client_program
from thalweg.engine.node import Node
from thalweg.engine.plan import Plan
from thalweg.engine.single import SingleTrainer
from thalweg.engine.task import make_net
from thalweg.nets import Net
from thalweg.network.edge.device_limits import DeviceLimits, check_population
from thalweg.network.edge.privacy_ledger import (
    PrivacyGuard,
    PrivacyLedger,
    default_account,
    name_data,
)
from thalweg.network.edge.socket import compute_digest
from thalweg.network.edge.store import Store
from thalweg.network.handshake import Invitation
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.network.remote_node import RemoteNode
from thalweg.network.wire import MaskRequest, MessageSchema, Request
from thalweg.recipes.base import Recipe
from thalweg.recipes.disclosure import compute_response_cost


@dataclass(frozen=True)
class DeviceOptions:
    """Options of a device."""

    # Source of its samples. replay: those of the scenario for this client, of a built-in data set;
    # replay:NAME: the same of the data that the owner names.
    data: str = "replay"
    data_dir: Path | None = None  # folder of data sets
    capacity: int | None = None  # number of stored samples; None: the scenario's capacity
    queue: int | None = None  # samples on disk besides those in memory; None: the default
    components: tuple[str, ...] = ()  # the owner's classes and functions for plans: file.py:NAME
    model: str | None = None  # path of the module to train, if the plan trains one: file.py:Net
    limits: DeviceLimits = field(default_factory=DeviceLimits)
    node_key: Path | None = None  # private key that signs the keys of secure aggregation
    peers: Path | None = None  # folder with public keys of trusted nodes; None: trust on first use
    min_participants: int | None = None  # of a secure sum; None: 3, and no sum is needed
    account: Path | None = None  # file of the privacy account; None: that of the user

    def __post_init__(self) -> None:
        check_ranges(
            self,
            capacity="[1, inf) or none",
            queue="[2, inf) or none",
            min_participants="[3, inf) or none",
        )

    @property
    def can_replay(self) -> bool:
        """Whether it can take part in a run that replays samples."""
        return self.data == "replay" or self.data.startswith("replay:")

    @property
    def objects(self) -> tuple[str, ...]:
        """Paths of all objects of the owner that a server's plan may use by name."""
        return self.components if self.model is None else (*self.components, self.model)


def check_options(options: DeviceOptions) -> None:
    """Report unusable files of the owner before a server is contacted."""
    Registry.from_paths(options.objects)
    for path in options.objects:
        if load_object(path) is None:
            name = path.rpartition(":")[2]
            raise ConfigError(f"{path}: there is no {name}.{list_names(path)} Correct the name.")
    open_ledger(options)


class DeviceClient(Protocol):
    """Protocol of a client on a device: request bytes in, response bytes out."""

    @property
    def message_schema(self) -> MessageSchema: ...

    def hello(self) -> bytes:
        """The message with which it joins."""
        ...

    def handle(self, payload: bytes) -> bytes:
        """Handle a request exactly once. State and response are on disk before this returns."""
        ...

    def close(self) -> None: ...


class ReplayClient:
    """A client with the samples of its scenario; gives the same results as a simulation.

    Privacy noise differs: a simulation draws it from the seed, a device from the system.
    """

    def __init__(self, remote: RemoteNode, store: Store) -> None:
        self._remote, self._store, self._lock = remote, store, threading.Lock()
        stored = store.state()
        self._state = remote.new_client() if stored is None else remote.restore_state(stored)
        self.message_schema = remote.schema

    def hello(self) -> bytes:
        return self._remote.hello()

    def handle(self, payload: bytes) -> bytes:
        """Handle a request.

        A repeated request gets the stored response and is not executed again.
        """
        digest = compute_digest(payload)
        with self._lock:
            known = self._store.find_response(digest)
            if known is not None:
                return known
            request = self._remote.read_request(payload)
            state, response = self._remote.execute(self._state, request)
            self._store.commit(self._remote.serialise_state(state), digest, response, request.rnd)
            self._state = state
            if isinstance(request, MaskRequest) and request.deletes_secrets:
                self._store.erase_deleted()
            return response

    def close(self) -> None:
        """Nothing to release: every change is on disk."""


def make_replay_client(
    plan: Plan, invitation: Invitation, store: Store, options: DeviceOptions
) -> ReplayClient:
    """The client of a scenario's world that an invitation names."""
    scenario, recipe = plan.scenario, plan.recipe
    check_population(scenario)
    mask_identity = make_mask_identity(recipe, invitation.common_digest, options)
    data = scenario.data.load(options.data_dir, plan.seed)
    net = make_net(scenario, data)
    options.limits.check_params(net.num_params)
    options.limits.check_memory(net.num_params, scenario.capacity, data.x[:1].nbytes)
    check_tensors(invitation, net)
    check_shapes(invitation, data.input_shape, data.num_classes, net.num_params)
    clients, world = make_client_program(
        plan, data, net.num_params, net.own_positions, net.smallest_batch, noise=SystemNoise()
    )
    if invitation.client >= world.num_clients:
        raise Rejected(
            RejectionCode.CLIENT_NUMBER,
            f"the server has a client {invitation.client}, but this client's plan has "
            f"{world.num_clients} clients, counted from 0.",
        )
    capacity = world.capacity(invitation.client)  # a world can vary it between clients
    options.limits.check_work(plan, capacity, world.supply(invitation.client))
    options.limits.check_memory(net.num_params, capacity, data.x[:1].nbytes)
    trainer = SingleTrainer.from_plan(plan, net, apply_views(data, world))
    node = Node(clients, invitation.client, trainer, scenario.prequential)
    schema = MessageSchema(recipe, net.num_params, data.task == "regression")
    charge = make_charge(recipe, options, store)
    return ReplayClient(RemoteNode(node, schema, mask_identity, charge), store)


def open_ledger(options: DeviceOptions) -> PrivacyLedger | None:
    """The owner's privacy account; None without `max_epsilon`."""
    limits = options.limits
    if limits.max_epsilon is None:
        return None
    return PrivacyLedger(
        options.account or default_account(),
        name_data(options.data, options.data_dir),
        limits.max_epsilon,
        limits.delta,
    )


def make_charge(recipe: Recipe, options: DeviceOptions, store: Store) -> Callable[[Request], None]:
    """The function that charges the owner's account; it does nothing without `max_epsilon`."""
    ledger = open_ledger(options)
    if ledger is None:
        return lambda request: None
    if store.read_membership() is None:  # a client that cannot respond does not join
        ledger.check(compute_response_cost(recipe))
    return PrivacyGuard(ledger, recipe).charge


def make_mask_identity(recipe: Recipe, run: str, options: DeviceOptions) -> Any:
    """The `MaskIdentity` of a device; None without secure aggregation, if its owner permits it."""
    if recipe.secure_aggregation is None:
        if options.min_participants is not None:
            raise Rejected(
                RejectionCode.PRIVACY,
                "this client sends updates only as part of a sum of at least "
                f"{options.min_participants} clients (--min-participants), but the server's plan "
                "has no secure aggregation. Serve it with --set secure_aggregation=masked.",
            )
        return None
    # Needs the optional package cryptography.
    from thalweg.network.secure_aggregation.client import MIN_PARTICIPANTS, MaskIdentity
    from thalweg.network.secure_aggregation.keys import read_node_key, read_trusted_keys

    return MaskIdentity(
        run,
        None if options.node_key is None else read_node_key(options.node_key),
        None if options.peers is None else read_trusted_keys(options.peers),
        MIN_PARTICIPANTS if options.min_participants is None else options.min_participants,
    )


def check_tensors(invitation: Invitation, net: Net) -> None:
    """Reject a run whose model has tensors with other names or shapes."""
    if not invitation.tensors:
        return
    sides = zip_longest(
        invitation.tensors.split("\n"), net.describe_tensors().split("\n"), fillvalue="nothing"
    )
    for theirs, ours in sides:
        if theirs != ours:
            raise Rejected(
                RejectionCode.MODEL,
                f"the server's model has {theirs}, where the model of this client has {ours}. Use "
                "the same model on both sides (--model).",
            )


def check_shapes(
    invitation: Invitation, shape: tuple[int, ...], num_classes: int, num_params: int
) -> None:
    """Reject a run whose samples or models have different shapes."""
    theirs = (tuple(invitation.shape), invitation.num_classes, invitation.num_params)
    ours = (tuple(shape), num_classes, num_params)
    for what, there, here in zip(
        ("samples of shape", "classes:", "model parameters:"), theirs, ours, strict=True
    ):
        if there != here:
            raise Rejected(
                RejectionCode.DATA,
                f"the server has {what} {there}, this client has {what} {here}. Do both sides use "
                "the same data?",
            )
