"""A server that deviates from secure aggregation to learn the update of client 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.bytes_federation import BytesFederation, load
from engine.recipe_runs import plan_of, play
from network.secure_aggregation.mask_clients import (
    RULE,
    RUN,
    UPDATE,
    MaskClients,
    make_response,
    make_train_request,
)
from thalweg.core.errors import BadMessage
from thalweg.engine.plan import Plan, plan_to_toml
from thalweg.federation import TrainRequest
from thalweg.network.edge.device_client import (
    DeviceOptions,
    ReplayClient,
    make_replay_client,
)
from thalweg.network.edge.store import Store
from thalweg.network.handshake import Invitation
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.network.remote_federation import Packet
from thalweg.network.secure_aggregation import server
from thalweg.network.secure_aggregation.client import DROPPED, RECEIVED, MaskIdentity
from thalweg.network.secure_aggregation.keys import (
    compute_directory_digest,
    compute_model_digest,
    expand_seed,
    get_public_node_key,
    make_node_key,
    restore_node_key,
)
from thalweg.network.wire import MaskRequest
from thalweg.theory import recover_secret

VICTIM, OTHERS = 0, (1, 2, 3)


def train_all(clients: MaskClients, victim: TrainRequest, other: TrainRequest) -> np.ndarray:
    """Let all clients train; only the victim has an update. Return the sum with masks."""
    total = clients.send_update(VICTIM, victim).masked.copy()
    for client in OTHERS:
        request = replace(other, client=client)
        total += clients.send_update(client, request, make_response(client, UPDATE * 0)).masked
    return total


def open_all(clients: MaskClients, asked: Iterable[int] = range(4)) -> dict[int, np.ndarray]:
    """Ask clients for their shares; some may reject this."""
    shares = {}
    for client in asked:
        try:
            shares[client] = clients.open(client)
        except BadMessage as error:
            if "have signed what this client has signed" not in str(error):
                raise
    return shares


def remove_seeds(total: np.ndarray, shares: dict[int, np.ndarray]) -> np.ndarray:
    """Remove the clients' own masks, which the server can recover from three of the shares."""
    for member in range(4):
        chosen = {holder + 1: bytes(shares[holder][member]) for holder in sorted(shares)[:3]}
        seed = recover_secret(chosen, 32)
        assert seed is not None
        total = total - expand_seed(seed, 3)
    return total


def decode(total: np.ndarray) -> np.ndarray:
    """The sum as numbers, without the check of its range."""
    return total.view(np.int64) * (RULE.bound / 2**RULE.bits)


def test_honest_server_learns_the_sum() -> None:
    clients = MaskClients().prepare()
    total = train_all(clients, make_train_request(VICTIM), make_train_request(1))
    for client in clients.states:
        clients.sign(client)
    np.testing.assert_allclose(decode(remove_seeds(total, open_all(clients))), UPDATE, atol=1e-6)


@pytest.mark.parametrize("attack", ["learning rate 0", "another model"])
def test_sum_reveals_nothing_if_the_victim_gets_another_request(attack: str) -> None:
    """The other clients agree with each other, and reveal the seed of the victim's own mask."""
    clients, other = MaskClients().prepare(), make_train_request(1)
    if attack == "learning rate 0":
        other = make_train_request(1, lr_scale=0.0)
    else:
        other = replace(other, params=other.params + 1)
    total = train_all(clients, make_train_request(VICTIM), other)
    for client in clients.states:
        clients.sign(client)
    shares = open_all(clients)
    assert sorted(shares) == [1, 2, 3], "the victim rejects it"
    learned = decode(remove_seeds(total, shares))
    assert (np.abs(learned) > 1000).any(), "the pairwise masks of the victim remain"


def test_server_cannot_give_the_other_clients_different_models() -> None:
    """With three different models, no statement has enough signatures."""
    clients = MaskClients().prepare()
    for client in clients.states:
        request = make_train_request(client, lr_scale=0.0 if client < 2 else 1.0)
        clients.send_update(client, request)
        clients.sign(client)
    assert open_all(clients) == {}


def test_server_cannot_claim_weights_for_clients_without_one() -> None:
    """Clients 1 and 2 have not trained, so that the sum is that of two clients."""
    clients = MaskClients().prepare()
    for client in clients.states:
        idle = make_response(client, steps=0 if client in (1, 2) else 2)
        clients.send_update(client, response=idle)
    with pytest.raises(BadMessage, match="the update of client 1 has weight 0, the request has 1"):
        clients.sign(1, weights=[1, 1, 1, 1])
    clients.sign(VICTIM, weights=[1, 1, 1, 1])
    assert open_all(clients, [VICTIM]) == {}, "clients 1 and 2 have not signed it"
    with pytest.raises(BadMessage, match="2 clients have an update with a weight above 0"):
        clients.sign(3, weights=[1, 0, 0, 1])


def test_server_cannot_ask_some_clients_for_the_seed_and_others_for_the_key() -> None:
    clients = MaskClients().prepare()
    train_all(clients, make_train_request(VICTIM), make_train_request(1))
    received, dropped = [RECEIVED] * 4, [DROPPED, RECEIVED, RECEIVED, RECEIVED]
    clients.sign(1, received)
    for client in (2, 3):
        clients.sign(client, dropped, [0, 1, 1, 1])
    assert open_all(clients, OTHERS) == {}


# --- invented clients and replaced keys ---


def test_invented_clients_are_rejected_by_a_list_of_trusted_keys() -> None:
    """The server invents clients 2 and 3; the victim trusts the keys of clients 0 and 1."""
    keys = [restore_node_key(make_node_key()) for _ in range(4)]
    trusted = frozenset(map(get_public_node_key, keys[:2]))
    identities = {client: MaskIdentity(RUN, keys[client]) for client in range(4)}
    identities[VICTIM] = MaskIdentity(RUN, keys[VICTIM], trusted)
    clients = MaskClients(identities=identities)
    clients.exchange_keys()
    with pytest.raises(Rejected, match="of client 2 is not one of the 2 keys that") as caught:
        clients.exchange_shares()
    assert caught.value.code is RejectionCode.KEY
    others = frozenset(map(get_public_node_key, keys[1:]))
    clients.identities[VICTIM] = MaskIdentity(RUN, keys[VICTIM], others)
    clients.exchange_shares()


def test_one_invented_client_cannot_count_twice() -> None:
    key = restore_node_key(make_node_key())
    clients = MaskClients(identities={2: MaskIdentity(RUN, key), 3: MaskIdentity(RUN, key)})
    clients.exchange_keys()
    with pytest.raises(BadMessage, match="two members of the sum have the same node key"):
        clients.exchange_shares()


def test_key_of_a_known_client_cannot_be_replaced() -> None:
    """Without a list, the first key of a client is trusted, and another one rejected."""
    clients = MaskClients().prepare()
    assert clients.states[VICTIM].known_clients.tolist() == [0, 1, 2, 3]
    clients.rnd = 1
    clients.identities[2] = MaskIdentity(RUN, restore_node_key(make_node_key()))
    clients.exchange_keys()
    with pytest.raises(BadMessage, match=r"client 2 has the node key \w+, but had \w+ in an ear"):
        clients.exchange_shares()


def test_owner_can_require_more_clients_than_the_plan() -> None:
    clients = MaskClients(identities={VICTIM: MaskIdentity(RUN, min_participants=5)})
    clients.exchange_keys()
    with pytest.raises(BadMessage, match="expected 5 to 16384 clients in a sum, got 4"):
        clients.exchange_shares()


# --- replayed messages ---


@pytest.mark.parametrize("what", ["round", "probe round", "run"])
def test_keys_of_another_round_or_run_are_rejected(what: str) -> None:
    clients = MaskClients()
    if what == "run":
        clients.identities[2] = MaskIdentity("another run")
    old = clients.exchange_keys()
    if what == "round":
        clients.rnd = 1
    if what == "probe round":
        request = MaskRequest(0, 2, "keys", clients.members, probe_round=1)
        probe = clients.answer(request).values
        old = {name: np.repeat(rows, 4, axis=0) for name, rows in probe.items()}
    new = clients.exchange_keys()
    for name in new:
        new[name][2] = old[name][2]
    with pytest.raises(BadMessage, match="the keys of client 2 are not signed by its node"):
        clients.exchange_shares()


def test_client_sends_one_masked_update_per_round() -> None:
    """The difference of two updates with the same masks would be readable."""
    clients = MaskClients().prepare()
    clients.send_update(VICTIM)
    for group in (np.arange(4), np.arange(3)):
        with pytest.raises(BadMessage, match="out of order"):
            clients.send_update(VICTIM, replace(make_train_request(VICTIM), mask_group=group))
    with pytest.raises(BadMessage, match="was sent already"):
        clients.ask(VICTIM, "keys")


def test_replayed_masked_update_spoils_the_sum_and_reveals_nothing() -> None:
    """The masks of another round, with other keys, do not cancel."""
    clients = MaskClients().prepare()
    old = train_all(clients, make_train_request(VICTIM), make_train_request(1))
    clients.rnd = 1
    clients.prepare()
    new = train_all(clients, make_train_request(VICTIM, 1), make_train_request(1, 1))
    seeds = [expand_seed(state.round.seed, 3) for state in clients.states.values()]
    np.testing.assert_allclose(decode(new - np.sum(seeds, axis=0)), UPDATE, atol=1e-6)
    assert (np.abs(decode(old - np.sum(seeds, axis=0))) > 1000).any()


def test_signatures_of_another_statement_are_not_counted() -> None:
    clients = MaskClients().prepare()
    train_all(clients, make_train_request(VICTIM), make_train_request(1))
    for client in clients.states:
        clients.sign(client)
    signatures = dict(clients.signatures)
    clients.rnd, clients.signatures = 1, {}
    clients.prepare()
    train_all(clients, make_train_request(VICTIM, 1), make_train_request(1, 1))
    clients.sign(VICTIM)
    clients.signatures = {**signatures, VICTIM: clients.signatures[VICTIM]}
    with pytest.raises(BadMessage, match="1 of 4 clients have signed what this client has signed"):
        clients.open(VICTIM)


def test_digests_differ_in_everything_that_clients_compare() -> None:
    clients = MaskClients()
    keys = clients.exchange_keys()
    directories = {
        compute_directory_digest(run, rnd, probe_round, np.array(members), values)
        for run, rnd, probe_round, members, values in (
            ("a", 0, 0, [0, 1, 2, 3], keys),
            ("b", 0, 0, [0, 1, 2, 3], keys),
            ("a", 1, 0, [0, 1, 2, 3], keys),
            ("a", 0, 1, [0, 1, 2, 3], keys),
            ("a", 0, 0, [0, 1, 2, 4], keys),
            ("a", 0, 0, [0, 1, 2, 3], {**keys, "node_keys": keys["node_keys"][::-1]}),
        )
    }
    assert len(directories) == 6
    first = make_train_request(0)
    values = np.ones(2, dtype=np.float32)
    models = {
        compute_model_digest(request)
        for request in (
            first,
            replace(first, params=first.params + 1),
            replace(first, lr_scales=first.lr_scales / 2),
            replace(first, session=1),
            replace(first, age=1),
            replace(first, broadcast={"objective": {"control": values}}),
            replace(first, broadcast={"objective": {"control": -values}}),
            replace(first, broadcast={"serving": {"averages": values}}),
            replace(first, broadcast={"serving": {"averages": -values}}),
        )
    }
    assert len(models) == 9
    with_alarm = replace(first, client=3, broadcast={"alarm": {"drop": values[:1]}})
    assert compute_model_digest(with_alarm) == compute_model_digest(first)


# --- different plans ---


class InvitedFederation(BytesFederation):
    """Devices whose plans come from the server; it can send each another one."""

    def __init__(self, plans: list[Plan], folder: Path) -> None:
        data = load(plans[0].scenario.data, plans[0].seed)
        super().__init__(plans[0], data)
        num_params = self.nodes[0].schema.num_params
        self.stores = [Store.open(folder / str(client)) for client in range(len(plans))]
        self.rejections: list[str] = []
        invitations = [
            Invitation(
                RUN, client, plan_to_toml(plan), data.input_shape, data.num_classes, num_params,
                live=False,
            )
            for client, plan in enumerate(plans)
        ]  # fmt: skip
        self.devices = [
            make_replay_client(plan, invitation, store, DeviceOptions())
            for plan, invitation, store in zip(plans, invitations, self.stores, strict=True)
        ]
        self._run = invitations[0].common_digest

    def _transfer(self, requests: Iterable[Packet]) -> Iterator[Packet]:
        for client, payload in requests:
            try:
                yield client, self.devices[client].handle(payload)
            except BadMessage as error:
                self.rejections.append(f"client {client}: {error}")

    def close(self) -> None:
        for store in self.stores:
            store.close()


@pytest.mark.parametrize("is_checked", [True, False], ids=["honest", "hostile"])
def test_server_cannot_give_the_other_clients_another_plan(
    is_checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a learning rate near 0 for all other clients, the sum would be the victim's update."""
    here = ["world.num_clients=4", "world.availability=1", "world.availability_spread=0"]
    small = ["capacity=8", "local.passes=1", "ticks=1", "secure_aggregation=masked"]
    plan = plan_of("fedavg", [*here, *small])
    other = plan_of("fedavg", [*here, *small, "local.lr=1e-12"])
    federation = InvitedFederation([plan] * 4, tmp_path / "equal")
    _, history = play(plan, federation, 1)
    assert [len(updates) for updates in history] == [4]
    federation.close()
    if not is_checked:  # the server forwards keys that are bound to another plan
        monkeypatch.setattr(server, "_has_valid_keys", lambda *arguments: True)
    federation = InvitedFederation([plan, other, other, other], tmp_path / "different")
    _, history = play(plan, federation, 1)
    assert [len(updates) for updates in history] == [0]
    signed = [each for each in federation.rejections if "are not signed by its node" in each]
    assert len(signed) == (0 if is_checked else 4), federation.rejections
    federation.close()


# --- a seized device ---


class StoredFederation(BytesFederation):
    """Devices with state folders. Records the secrets of each round while they exist."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        super().__init__(plan, load(plan.scenario.data, plan.seed))
        self.folders = [folder / str(client) for client in range(len(self.nodes))]
        self.stores = [Store.open(own) for own in self.folders]
        self.devices = [
            ReplayClient(node, store) for node, store in zip(self.nodes, self.stores, strict=True)
        ]
        self.secrets: dict[int, set[bytes]] = {client: set() for client in range(len(self.nodes))}
        self.were_stored = 0

    def _transfer(self, requests: Iterable[Packet]) -> Iterator[Packet]:
        for client, payload in requests:
            yield client, self.devices[client].handle(payload)
            octets = self.devices[client]._state.masks.round.secrets.tobytes()
            parts = {octets[first : first + 32] for first in range(0, len(octets), 32)}
            self.secrets[client] |= parts
            self.were_stored += bool(parts) and all(
                part in read_files(self.folders[client]) for part in parts
            )

    def close(self) -> None:
        for store in self.stores:
            store.close()


def read_files(folder: Path) -> bytes:
    """All bytes of a folder, including those of deleted rows and of the write-ahead log."""
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file())


def test_seized_store_has_no_secrets_of_past_rounds(tmp_path: Path) -> None:
    here = ["world.num_clients=4", "world.availability=1", "world.availability_spread=0"]
    small = ["capacity=8", "local.passes=1", "ticks=1"]
    plan = plan_of("fedavg", [*here, *small, "secure_aggregation=masked"])
    federation = StoredFederation(plan, tmp_path)
    _, history = play(plan, federation, 2)
    assert [len(updates) for updates in history] == [4, 4]
    assert federation.were_stored > 4, "during a round, the secrets are in the files"
    for client, secrets in federation.secrets.items():
        assert len(secrets) == 6, "three secrets in each of two rounds"
        content = read_files(federation.folders[client])
        assert not any(secret in content for secret in secrets)
    federation.close()
