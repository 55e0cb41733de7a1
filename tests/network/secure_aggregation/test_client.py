"""The client's part of secure aggregation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from thalweg.aggregation import Masked
from thalweg.core.errors import BadMessage
from thalweg.core.types import Ints
from thalweg.federation import Octets, TrainRequest, TrainResponse
from thalweg.network.secure_aggregation.client import (
    DROPPED,
    NOT_ASKED,
    RECEIVED,
    MaskState,
    answer_mask_request,
    derive_public_key,
    expand_seed,
    make_mask_group,
    mask_update,
    new_mask_state,
)
from thalweg.network.wire import (
    MaskRequest,
    MaskResponse,
    MaskStep,
    MessageSchema,
    read_request,
    read_response,
    to_bytes,
)
from thalweg.recipes import fedavg

RULE = Masked()
RECIPE = replace(fedavg(), secure_aggregation=RULE)
MEMBERS: Ints = np.arange(4)
UPDATE = np.array([0.5, -1.0, 0.25], dtype=np.float32)


def make_request(client: int, step: MaskStep, rnd: int = 0, **values: Octets) -> MaskRequest:
    return MaskRequest(rnd, client, step, MEMBERS, values=values)


class FourClients:
    """Four clients that have sent their keys and encrypted shares."""

    def __init__(self) -> None:
        self.states = [new_mask_state() for _ in range(4)]
        keys = [self.answer(make_request(client, "keys")) for client in range(4)]
        self.mask_keys = [bytes(response.values["mask_keys"][0]) for response in keys]
        self.channel_keys = np.concatenate([response.values["channel_keys"] for response in keys])
        self.encrypted_shares = [
            self.answer(make_request(client, "shares", channel_keys=self.channel_keys)).values[
                "encrypted_shares"
            ]
            for client in range(4)
        ]

    def answer(self, request: MaskRequest) -> MaskResponse:
        self.states[request.client], response = answer_mask_request(
            request, self.states[request.client], RULE
        )
        return response

    def open_request(self, reader: int, statuses: list[int]) -> MaskRequest:
        encrypted_shares = np.stack([mine[reader] for mine in self.encrypted_shares])
        column = np.array(statuses, dtype=np.uint8)[:, None]
        return make_request(
            reader,
            "open",
            channel_keys=self.channel_keys,
            encrypted_shares=encrypted_shares,
            statuses=column,
        )

    def train_request(self) -> TrainRequest:
        one = np.zeros(1, dtype=np.int64)
        params = np.zeros((1, 3), dtype=np.float32)
        mask_group = make_mask_group([0, 1, 2, 3], self.mask_keys)
        return TrainRequest(0, 0, one, np.ones(1), params, mask_group=mask_group)


def make_response(client: int, update: np.ndarray = UPDATE, steps: int = 2) -> TrainResponse:
    zero, steps_made = np.zeros(1, dtype=np.int64), np.array([steps])
    return TrainResponse(0, client, zero, update[None], 7, steps_made, np.ones(1), zero, zero)


def masked(state: MaskState, request: TrainRequest, response: TrainResponse) -> TrainResponse:
    return mask_update(response, request, state, RULE, RECIPE)[1]


def test_pairwise_masks_cancel_in_the_sum() -> None:
    clients, total = FourClients(), np.zeros(3, dtype=np.uint64)
    for client in range(4):
        response = masked(clients.states[client], clients.train_request(), make_response(client))
        assert response.masked is not None
        total += response.masked
    from thalweg.network.secure_aggregation.client import RoundSecrets

    for state in clients.states:
        total -= expand_seed(RoundSecrets(state.secret.tobytes(), 0, 0).seed, 3)
    mean = RULE.decode_mean(total.view(np.int64), 4)
    np.testing.assert_allclose(mean, UPDATE, atol=1e-6)


def test_client_without_a_step_adds_zero() -> None:
    clients = FourClients()
    idle, same = (
        masked(clients.states[0], clients.train_request(), make_response(0, update, steps=0)).masked
        for update in (UPDATE, UPDATE * 0)
    )
    assert idle.tolist() == same.tolist()


def test_update_that_is_not_finite_is_sent_without_a_loss() -> None:
    clients = FourClients()
    broken = masked(
        clients.states[0], clients.train_request(), make_response(0, UPDATE * np.float32(np.nan))
    )
    assert np.isnan(broken.losses).all()
    assert broken.masked.tolist() == [0, 0, 0], "the update is not revealed"


def test_shares_can_be_decrypted_by_their_recipient_only() -> None:
    clients = FourClients()
    mine = clients.answer(clients.open_request(0, [RECEIVED] * 4)).values["shares"]
    assert mine.any(axis=1).all()
    stolen = clients.open_request(1, [RECEIVED] * 4)
    encrypted_shares = np.stack(
        [encrypted_shares[0] for encrypted_shares in clients.encrypted_shares]
    )
    values = {**stolen.values, "encrypted_shares": encrypted_shares}
    assert not clients.answer(replace(stolen, values=values)).values["shares"].any()


def test_opened_share_depends_on_the_status_of_the_member() -> None:
    share_by_status = {}
    for status in (RECEIVED, DROPPED, NOT_ASKED):
        clients = FourClients()
        statuses = [RECEIVED, RECEIVED, RECEIVED, status]
        share_by_status[status] = clients.answer(clients.open_request(0, statuses)).values[
            "shares"
        ][3]
    assert not share_by_status[NOT_ASKED].any()
    assert share_by_status[RECEIVED].any()
    assert share_by_status[DROPPED].any()


def test_shares_of_a_round_are_opened_once() -> None:
    clients = FourClients()
    clients.answer(clients.open_request(0, [RECEIVED] * 4))
    with pytest.raises(BadMessage, match="opened already"):
        clients.answer(clients.open_request(0, [RECEIVED, RECEIVED, RECEIVED, DROPPED]))


def test_shares_are_made_once_per_round_in_ascending_rounds() -> None:
    clients = FourClients()
    with pytest.raises(BadMessage, match="made already"):
        clients.answer(make_request(0, "shares", channel_keys=clients.channel_keys))
    clients.answer(make_request(0, "shares", rnd=2, channel_keys=clients.channel_keys))
    with pytest.raises(BadMessage, match="made already"):
        clients.answer(make_request(0, "shares", rnd=1, channel_keys=clients.channel_keys))
    with pytest.raises(BadMessage, match="were not made, or were opened already"):
        clients.answer(clients.open_request(0, [RECEIVED] * 4))


def test_probe_rounds_have_their_own_secrets_and_precede_the_round() -> None:
    clients = FourClients()
    key = clients.answer(make_request(0, "keys")).values["mask_keys"]
    other = clients.answer(replace(make_request(0, "keys"), probe_round=1)).values["mask_keys"]
    assert key.tolist() != other.tolist()
    with pytest.raises(BadMessage, match="made already"):
        clients.answer(
            replace(make_request(0, "shares", channel_keys=clients.channel_keys), probe_round=3)
        )


@pytest.mark.parametrize(
    "statuses, why",
    [
        ([DROPPED, RECEIVED, RECEIVED, RECEIVED], "are inconsistent"),
        ([RECEIVED, RECEIVED, RECEIVED, 9], "are inconsistent"),
        ([RECEIVED, RECEIVED, DROPPED, DROPPED], "2 of 4 updates were received, 3 are needed"),
    ],
)
def test_open_request_with_inconsistent_or_too_few_updates_is_rejected(
    statuses: list[int], why: str
) -> None:
    clients = FourClients()
    with pytest.raises(BadMessage, match=why):
        clients.answer(clients.open_request(0, statuses))


def test_sums_that_are_too_small_or_of_other_clients_are_rejected() -> None:
    state = new_mask_state()
    two = MaskRequest(
        0, 0, "shares", np.arange(2), values={"channel_keys": np.zeros((2, 32), np.uint8)}
    )
    with pytest.raises(BadMessage, match="expected 3 to"):
        answer_mask_request(two, state, RULE)
    with pytest.raises(BadMessage, match="not a member of the sum"):
        answer_mask_request(replace(make_request(0, "keys"), client=8), state, RULE)


def test_update_is_masked_only_with_valid_shares_and_keys() -> None:
    clients = FourClients()
    with pytest.raises(BadMessage, match="requested before its mask shares"):
        masked(
            clients.states[0],
            replace(clients.train_request(), rnd=1),
            replace(make_response(0), rnd=1),
        )
    swapped = make_mask_group([0, 1, 2, 3], clients.mask_keys[::-1])
    with pytest.raises(BadMessage, match="a wrong public key for client 0"):
        masked(
            clients.states[0],
            replace(clients.train_request(), mask_group=swapped),
            make_response(0),
        )
    two = make_mask_group([0, 1], clients.mask_keys[:2])
    with pytest.raises(BadMessage, match="a sum of 2 clients reveals too much"):
        masked(
            clients.states[0], replace(clients.train_request(), mask_group=two), make_response(0)
        )


def test_update_of_a_round_is_masked_once() -> None:
    clients = FourClients()
    three = make_mask_group([0, 1, 2], clients.mask_keys[:3])
    state, _ = mask_update(
        make_response(0), clients.train_request(), clients.states[0], RULE, RECIPE
    )
    for request in (clients.train_request(), replace(clients.train_request(), mask_group=three)):
        with pytest.raises(BadMessage, match="was sent already"):
            masked(state, request, make_response(0))


def test_invalid_public_key_is_rejected() -> None:
    clients = FourClients()
    zeros = np.zeros_like(clients.channel_keys)
    with pytest.raises(BadMessage, match="a public key is not a valid"):
        clients.answer(make_request(0, "shares", rnd=1, channel_keys=zeros))


def test_keys_of_a_round_depend_on_the_secret_only() -> None:
    state = new_mask_state()
    first, again = (
        answer_mask_request(make_request(0, "keys", rnd=5), state, RULE)[1] for _ in range(2)
    )
    assert first.values["mask_keys"].tolist() == again.values["mask_keys"].tolist()
    assert len(derive_public_key(bytes(range(32)))) == 32


# --- on the wire ---


def test_mask_messages_and_masked_updates_round_trip() -> None:
    schema, clients = MessageSchema(RECIPE, 3), FourClients()
    for request in (make_request(0, "keys"), clients.open_request(0, [RECEIVED] * 4)):
        received = read_request(to_bytes(request, schema), schema)
        assert isinstance(received, MaskRequest)
        assert {name: values.tolist() for name, values in received.values.items()} == {
            name: values.tolist() for name, values in request.values.items()
        }
    request = read_request(to_bytes(clients.train_request(), schema), schema)
    assert isinstance(request, TrainRequest)
    assert request.mask_group is not None
    assert request.mask_group.keys.tolist() == clients.train_request().mask_group.keys.tolist()
    sent = masked(clients.states[0], request, make_response(0))
    received_response = read_response(to_bytes(sent, schema), schema)
    assert isinstance(received_response, TrainResponse)
    assert received_response.masked.tolist() == sent.masked.tolist()


def test_masked_messages_are_accepted_only_by_masking_recipes() -> None:
    plain, schema, clients = MessageSchema(fedavg(), 3), MessageSchema(RECIPE, 3), FourClients()
    with pytest.raises(BadMessage, match="step must be one of nothing"):
        to_bytes(make_request(0, "keys"), plain)
    with pytest.raises(BadMessage, match="the recipe does not mask updates"):
        to_bytes(clients.train_request(), plain)
    with pytest.raises(BadMessage, match="the recipe does not mask updates"):
        to_bytes(masked(clients.states[0], clients.train_request(), make_response(0)), plain)
    with pytest.raises(BadMessage, match="masked must be an array of uint64"):
        to_bytes(make_response(0), schema)
    with pytest.raises(BadMessage, match="mask_group"):
        to_bytes(replace(clients.train_request(), mask_group=None), schema)
