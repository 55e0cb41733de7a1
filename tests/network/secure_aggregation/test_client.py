"""The client's part of secure aggregation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from network.secure_aggregation.mask_clients import (
    RECIPE,
    RULE,
    UPDATE,
    MaskClients,
    make_response,
    make_train_request,
)
from thalweg.core.errors import BadMessage
from thalweg.federation import TrainRequest, TrainResponse
from thalweg.network.secure_aggregation.client import (
    DROPPED,
    NOT_ASKED,
    RECEIVED,
    MaskRound,
)
from thalweg.network.secure_aggregation.keys import expand_seed
from thalweg.network.wire import (
    MaskRequest,
    MessageSchema,
    read_request,
    read_response,
    to_bytes,
)
from thalweg.recipes import fedavg

ALL_RECEIVED = [RECEIVED] * 4


def send_updates(clients: MaskClients) -> np.ndarray:
    """Let all clients send their update; return the sum."""
    total = np.zeros(3, dtype=np.uint64)
    for client in clients.states:
        total += clients.send_update(client).masked
    return total


def test_pairwise_masks_cancel_in_the_sum() -> None:
    clients = MaskClients().prepare()
    seeds = [state.round.seed for state in clients.states.values()]
    total = send_updates(clients)
    for seed in seeds:
        total -= expand_seed(seed, 3)
    mean = RULE.decode_mean(total.view(np.int64), 4)
    np.testing.assert_allclose(mean, UPDATE, atol=1e-6)


def test_client_without_a_step_adds_zero() -> None:
    clients = MaskClients().prepare()
    before = dict(clients.states)
    idle = clients.send_update(0, response=make_response(0, UPDATE, steps=0)).masked
    clients.states = before
    same = clients.send_update(0, response=make_response(0, UPDATE * 0)).masked
    assert idle.tolist() == same.tolist()


def test_update_that_is_not_finite_is_sent_without_a_loss() -> None:
    response = make_response(0, UPDATE * np.float32(np.nan))
    broken = MaskClients().prepare().send_update(0, response=response)
    assert np.isnan(broken.losses).all()
    assert broken.masked.tolist() == [0, 0, 0], "the update is not revealed"


def test_shares_can_be_decrypted_by_their_recipient_only() -> None:
    clients = MaskClients().prepare()
    send_updates(clients)
    for client in clients.states:
        clients.sign(client)
    assert clients.open(0).any(axis=1).all()
    stolen = np.stack([encrypted[0] for encrypted in clients.encrypted.values()])
    assert not clients.open(1, encrypted_shares=stolen).any()


def test_opened_share_depends_on_the_status_of_the_member() -> None:
    share_by_status = {}
    for status in (RECEIVED, DROPPED, NOT_ASKED):
        clients = MaskClients().prepare()
        group = np.arange(3) if status == NOT_ASKED else np.arange(4)
        for client in range(3):
            clients.send_update(client, replace(make_train_request(client), mask_group=group))
            weights = [1, 1, 1, int(status == RECEIVED)]
            clients.sign(client, [RECEIVED, RECEIVED, RECEIVED, status], weights)
        share_by_status[status] = clients.open(0)[3]
    assert not share_by_status[NOT_ASKED].any()
    assert share_by_status[RECEIVED].any()
    assert share_by_status[DROPPED].any()


def test_each_step_of_a_round_is_answered_once() -> None:
    clients = MaskClients().prepare()
    with pytest.raises(BadMessage, match=r"it must follow 'keys' of round 1, but .* 'shares'"):
        clients.ask(0, "shares", **clients.keys)
    with pytest.raises(BadMessage, match="it must follow 'update' of round 1"):
        clients.sign(0)
    send_updates(clients)
    with pytest.raises(BadMessage, match="it must follow 'shares' of round 1"):
        clients.send_update(0)
    for client in clients.states:
        clients.sign(client)
    with pytest.raises(BadMessage, match="it must follow 'update' of round 1"):
        clients.sign(0, [RECEIVED, RECEIVED, RECEIVED, DROPPED], [1, 1, 1, 0])
    clients.open(0)
    with pytest.raises(BadMessage, match=r"it must follow 'sign' of round 1, but .* 'none'"):
        clients.open(0)


def test_round_may_start_again_with_other_keys_until_its_update_is_sent() -> None:
    clients = MaskClients().prepare()
    first = clients.keys["mask_keys"].tolist()
    clients.prepare()
    assert not any(key in first for key in clients.keys["mask_keys"].tolist())
    clients.send_update(0)
    with pytest.raises(BadMessage, match="the update for round 1 was sent already"):
        clients.ask(0, "keys")
    clients.rnd = 1
    clients.ask(0, "keys")
    with pytest.raises(BadMessage, match="it must follow 'update' of round 2"):
        clients.sign(0)


def test_probe_rounds_precede_their_round() -> None:
    clients = MaskClients().prepare()
    probe = MaskRequest(0, 0, "keys", clients.members, probe_round=2)
    clients.answer(probe)
    clients.prepare().send_update(0)
    with pytest.raises(BadMessage, match="was sent already"):
        clients.answer(probe)


def test_secrets_are_drawn_for_a_round_and_deleted_after_it() -> None:
    clients = MaskClients().prepare()
    send_updates(clients)
    for client in clients.states:
        clients.sign(client)
    secrets = [state.round.secrets.tobytes() for state in clients.states.values()]
    assert len(set(secrets)) == 4
    assert all(len(each) == 96 for each in secrets)
    clients.open(0)
    assert clients.states[0].round == MaskRound()
    assert clients.states[0].last_sent == (0, 1 << 30), "the round is not repeated"


@pytest.mark.parametrize(
    "statuses, weights, why",
    [
        ([DROPPED, RECEIVED, RECEIVED, RECEIVED], [0, 1, 1, 1], "are inconsistent"),
        ([RECEIVED, RECEIVED, RECEIVED, NOT_ASKED], [1, 1, 1, 0], "are inconsistent"),
        ([RECEIVED, RECEIVED, RECEIVED, 9], [1, 1, 1, 0], "are inconsistent"),
        (
            [RECEIVED, RECEIVED, DROPPED, DROPPED],
            [1, 1, 0, 0],
            "2 of 4 updates were received, 3 are needed",
        ),
        (ALL_RECEIVED, [2, 1, 1, 1], "has weight 1, the request has 2"),
        ([RECEIVED, RECEIVED, RECEIVED, DROPPED], [1, 1, 1, 1], "must have weight 0"),
        (ALL_RECEIVED, [1, 1, 0, 0], "2 clients have an update with a weight above 0, 3 are"),
    ],
)
def test_statement_that_is_inconsistent_or_about_too_few_updates_is_not_signed(
    statuses: list[int], weights: list[int], why: str
) -> None:
    clients = MaskClients().prepare()
    send_updates(clients)
    with pytest.raises(BadMessage, match=why):
        clients.sign(0, statuses, weights)


def test_sums_that_are_too_small_or_of_other_clients_are_rejected() -> None:
    two = MaskClients(2)
    two.exchange_keys()
    with pytest.raises(BadMessage, match="expected 3 to 16384 clients in a sum, got 2"):
        two.exchange_shares()
    clients = MaskClients().prepare()
    with pytest.raises(BadMessage, match="not a member of the sum"):
        clients.answer(MaskRequest(0, 0, "keys", np.array([1, 2, 3])))
    for group, why in (
        (np.arange(2), "a sum of 2 clients reveals too much about each: at least 3"),
        (np.arange(5), "clients whose keys were not sent before"),
        (np.array([1, 2, 3]), "not a member of the sum"),
    ):
        with pytest.raises(BadMessage, match=why):
            clients.send_update(0, replace(make_train_request(0), mask_group=group))
    send_updates(clients)
    three = {
        "statuses": np.full((3, 1), RECEIVED, dtype=np.uint8),
        "weights": np.zeros((3, 8), dtype=np.uint8),
    }
    with pytest.raises(BadMessage, match="members of the sum differ"):
        clients.ask(0, "sign", np.arange(3), **three)


def test_update_is_masked_only_after_the_shares_of_its_round() -> None:
    clients = MaskClients().prepare()
    with pytest.raises(BadMessage, match="it must follow 'shares' of round 2"):
        clients.send_update(0, make_train_request(0, rnd=1))


def test_wrong_keys_are_rejected() -> None:
    clients = MaskClients()
    clients.exchange_keys()
    for name in ("mask_keys", "channel_keys", "commitments", "node_keys"):
        swapped = {**clients.keys, name: clients.keys[name][::-1]}
        with pytest.raises(BadMessage, match="wrong public keys for client 0"):
            clients.ask(0, "shares", **swapped)
    zeros = clients.keys["mask_keys"].copy()
    zeros[2] = 0
    with pytest.raises(BadMessage, match="the keys of client 2 are not signed by its node"):
        clients.ask(0, "shares", **{**clients.keys, "mask_keys": zeros})


# --- on the wire ---


def test_mask_messages_and_masked_updates_round_trip() -> None:
    schema, clients = MessageSchema(RECIPE, 3), MaskClients().prepare()
    for request in (
        MaskRequest(0, 0, "keys", clients.members),
        MaskRequest(0, 0, "shares", clients.members, values=clients.keys),
    ):
        received = read_request(to_bytes(request, schema), schema)
        assert isinstance(received, MaskRequest)
        assert {name: values.tolist() for name, values in received.values.items()} == {
            name: values.tolist() for name, values in request.values.items()
        }
    sent_request = replace(make_train_request(0), mask_group=clients.members)
    request = read_request(to_bytes(sent_request, schema), schema)
    assert isinstance(request, TrainRequest)
    assert request.mask_group.tolist() == [0, 1, 2, 3]
    sent = clients.send_update(0, request)
    received_response = read_response(to_bytes(sent, schema), schema)
    assert isinstance(received_response, TrainResponse)
    assert received_response.masked.tolist() == sent.masked.tolist()


def test_masked_messages_are_accepted_only_by_masking_recipes() -> None:
    plain, schema = MessageSchema(fedavg(), 3), MessageSchema(RECIPE, 3)
    clients = MaskClients().prepare()
    request = replace(make_train_request(0), mask_group=clients.members)
    with pytest.raises(BadMessage, match="step must be one of nothing"):
        to_bytes(MaskRequest(0, 0, "keys", clients.members), plain)
    with pytest.raises(BadMessage, match="the recipe does not mask updates"):
        to_bytes(request, plain)
    with pytest.raises(BadMessage, match="the recipe does not mask updates"):
        to_bytes(clients.send_update(0, request), plain)
    with pytest.raises(BadMessage, match="masked must be an array of uint64"):
        to_bytes(make_response(0), schema)
    with pytest.raises(BadMessage, match="mask_group"):
        to_bytes(make_train_request(0), schema)
