"""What a client gives for a masked sum, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from thalweg.aggregation import Masked
from thalweg.core.errors import BadMessage
from thalweg.core.types import Ints
from thalweg.federation import (
    MaskRequest,
    MaskResponse,
    MaskStep,
    Octets,
    TrainRequest,
    TrainResponse,
)
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
from thalweg.network.wire import MessageSchema, read_request, read_response, to_bytes
from thalweg.recipes import fedavg

RULE = Masked()
RECIPE = replace(fedavg(), secure_aggregation=RULE)
MEMBERS: Ints = np.arange(4)
UPDATE = np.array([0.5, -1.0, 0.25], dtype=np.float32)


def call(client: int, step: MaskStep, rnd: int = 0, **values: Octets) -> MaskRequest:
    return MaskRequest(rnd, client, step, MEMBERS, values=values)


class Circle4:
    """Four clients that have said their keys and written their letters."""

    def __init__(self) -> None:
        self.states = [new_mask_state() for _ in range(4)]
        keys = [self.give(call(client, "keys")) for client in range(4)]
        self.mask_keys = [bytes(token.values["mask_keys"][0]) for token in keys]
        self.channel_keys = np.concatenate([token.values["channel_keys"] for token in keys])
        self.encrypted_shares = [
            self.give(call(client, "shares", channel_keys=self.channel_keys)).values[
                "encrypted_shares"
            ]
            for client in range(4)
        ]

    def give(self, asked: MaskRequest) -> MaskResponse:
        self.states[asked.client], token = answer_mask_request(
            asked, self.states[asked.client], RULE
        )
        return token

    def opening(self, reader: int, statuses: list[int]) -> MaskRequest:
        encrypted_shares = np.stack([mine[reader] for mine in self.encrypted_shares])
        column = np.array(statuses, dtype=np.uint8)[:, None]
        return call(
            reader,
            "open",
            channel_keys=self.channel_keys,
            encrypted_shares=encrypted_shares,
            statuses=column,
        )

    def order(self) -> TrainRequest:
        one = np.zeros(1, dtype=np.int64)
        params = np.zeros((1, 3), dtype=np.float32)
        mask_group = make_mask_group([0, 1, 2, 3], self.mask_keys)
        return TrainRequest(0, 0, one, np.ones(1), params, mask_group=mask_group)


def reply_of(client: int, update: np.ndarray = UPDATE, steps: int = 2) -> TrainResponse:
    zero, steps_made = np.zeros(1, dtype=np.int64), np.array([steps])
    return TrainResponse(0, client, zero, update[None], 7, steps_made, np.ones(1), zero, zero)


def masked(state: MaskState, order: TrainRequest, reply: TrainResponse) -> TrainResponse:
    return mask_update(reply, order, state, RULE, RECIPE)[1]


def test_masks_between_clients_cancel_and_each_ones_own_stays() -> None:
    mask_group, total = Circle4(), np.zeros(3, dtype=np.uint64)
    for client in range(4):
        reply = masked(mask_group.states[client], mask_group.order(), reply_of(client))
        assert reply.masked is not None
        total += reply.masked
    from thalweg.network.secure_aggregation.client import RoundSecrets

    for state in mask_group.states:
        total -= expand_seed(RoundSecrets(state.secret.tobytes(), 0, 0).seed, 3)
    mean = RULE.decode_mean(total.view(np.int64), 4)
    np.testing.assert_allclose(mean, UPDATE, atol=1e-6)


def test_who_has_learnt_nothing_adds_nothing() -> None:
    mask_group = Circle4()
    idle, same = (
        masked(mask_group.states[0], mask_group.order(), reply_of(0, update, steps=0)).masked
        for update in (UPDATE, UPDATE * 0)
    )
    assert idle.tolist() == same.tolist()


def test_an_update_that_is_not_finite_has_no_loss_so_that_the_server_refuses_it() -> None:
    mask_group = Circle4()
    broken = masked(
        mask_group.states[0], mask_group.order(), reply_of(0, UPDATE * np.float32(np.nan))
    )
    assert np.isnan(broken.losses).all()
    assert broken.masked.tolist() == [0, 0, 0], "nor anything else"


def test_a_letter_is_for_one_reader() -> None:
    mask_group = Circle4()
    mine = mask_group.give(mask_group.opening(0, [RECEIVED] * 4)).values["shares"]
    assert mine.any(axis=1).all()
    stolen = mask_group.opening(1, [RECEIVED] * 4)
    encrypted_shares = np.stack(
        [encrypted_shares[0] for encrypted_shares in mask_group.encrypted_shares]
    )
    values = {**stolen.values, "encrypted_shares": encrypted_shares}
    assert not mask_group.give(replace(stolen, values=values)).values["shares"].any()


def test_of_the_lost_another_share_is_given_than_of_the_heard_and_none_of_the_absent() -> None:
    given_for = {}
    for fate in (RECEIVED, DROPPED, NOT_ASKED):
        mask_group = Circle4()
        circle_fates = [RECEIVED, RECEIVED, RECEIVED, fate]
        given_for[fate] = mask_group.give(mask_group.opening(0, circle_fates)).values["shares"][3]
    assert not given_for[NOT_ASKED].any()
    assert given_for[RECEIVED].any()
    assert given_for[DROPPED].any()


def test_a_round_is_opened_once() -> None:
    mask_group = Circle4()
    mask_group.give(mask_group.opening(0, [RECEIVED] * 4))
    with pytest.raises(BadMessage, match="opened already"):
        mask_group.give(mask_group.opening(0, [RECEIVED, RECEIVED, RECEIVED, DROPPED]))


def test_shares_are_made_once_and_not_for_a_round_that_is_over() -> None:
    mask_group = Circle4()
    with pytest.raises(BadMessage, match="made already"):
        mask_group.give(call(0, "shares", channel_keys=mask_group.channel_keys))
    mask_group.give(call(0, "shares", rnd=2, channel_keys=mask_group.channel_keys))
    with pytest.raises(BadMessage, match="made already"):
        mask_group.give(call(0, "shares", rnd=1, channel_keys=mask_group.channel_keys))
    with pytest.raises(BadMessage, match="nothing is to be opened"):
        mask_group.give(mask_group.opening(0, [RECEIVED] * 4))


def test_rehearsals_have_secrets_of_their_own_and_come_before_the_round() -> None:
    mask_group = Circle4()
    key = mask_group.give(call(0, "keys")).values["mask_keys"]
    other = mask_group.give(replace(call(0, "keys"), probe_round=1)).values["mask_keys"]
    assert key.tolist() != other.tolist()
    with pytest.raises(BadMessage, match="made already"):
        mask_group.give(
            replace(call(0, "shares", channel_keys=mask_group.channel_keys), probe_round=3)
        )


@pytest.mark.parametrize(
    "statuses, why",
    [
        ([DROPPED, RECEIVED, RECEIVED, RECEIVED], "cannot be true"),
        ([RECEIVED, RECEIVED, RECEIVED, 9], "cannot be true"),
        ([RECEIVED, RECEIVED, DROPPED, DROPPED], "2 of 4 clients were heard, 3 are needed"),
    ],
)
def test_nothing_is_opened_for_a_sum_of_too_few_or_without_oneself(
    statuses: list[int], why: str
) -> None:
    mask_group = Circle4()
    with pytest.raises(BadMessage, match=why):
        mask_group.give(mask_group.opening(0, statuses))


def test_a_sum_of_two_is_refused_and_so_is_one_of_others() -> None:
    state = new_mask_state()
    two = MaskRequest(
        0, 0, "shares", np.arange(2), values={"channel_keys": np.zeros((2, 32), np.uint8)}
    )
    with pytest.raises(BadMessage, match="at least 3"):
        answer_mask_request(two, state, RULE)
    with pytest.raises(BadMessage, match="not among the members"):
        answer_mask_request(replace(call(0, "keys"), client=8), state, RULE)


def test_an_update_is_masked_with_those_who_have_shares_and_under_the_own_key() -> None:
    mask_group = Circle4()
    with pytest.raises(BadMessage, match="no shares of its masks"):
        masked(
            mask_group.states[0], replace(mask_group.order(), rnd=1), replace(reply_of(0), rnd=1)
        )
    swapped = make_mask_group([0, 1, 2, 3], mask_group.mask_keys[::-1])
    with pytest.raises(BadMessage, match="not its own"):
        masked(mask_group.states[0], replace(mask_group.order(), mask_group=swapped), reply_of(0))
    two = make_mask_group([0, 1], mask_group.mask_keys[:2])
    with pytest.raises(BadMessage, match="says too much"):
        masked(mask_group.states[0], replace(mask_group.order(), mask_group=two), reply_of(0))


def test_one_update_is_masked_for_a_sum_whoever_is_said_to_be_in_it() -> None:
    mask_group = Circle4()
    three = make_mask_group([0, 1, 2], mask_group.mask_keys[:3])
    state, _ = mask_update(reply_of(0), mask_group.order(), mask_group.states[0], RULE, RECIPE)
    for order in (mask_group.order(), replace(mask_group.order(), mask_group=three)):
        with pytest.raises(BadMessage, match="was sent already"):
            masked(state, order, reply_of(0))


def test_a_key_that_is_none_is_refused() -> None:
    mask_group = Circle4()
    zeros = np.zeros_like(mask_group.channel_keys)
    with pytest.raises(BadMessage, match="a public key is none"):
        mask_group.give(call(0, "shares", rnd=1, channel_keys=zeros))


def test_the_same_secret_gives_the_same_keys_after_a_restart() -> None:
    state = new_mask_state()
    first, again = (answer_mask_request(call(0, "keys", rnd=5), state, RULE)[1] for _ in range(2))
    assert first.values["mask_keys"].tolist() == again.values["mask_keys"].tolist()
    assert len(derive_public_key(bytes(range(32)))) == 32


# --- on the wire ---


def test_calls_tokens_and_masked_replies_cross_the_wire() -> None:
    terms, mask_group = MessageSchema(RECIPE, 3), Circle4()
    for asked in (call(0, "keys"), mask_group.opening(0, [RECEIVED] * 4)):
        came = read_request(to_bytes(asked, terms), terms)
        assert isinstance(came, MaskRequest)
        assert {name: values.tolist() for name, values in came.values.items()} == {
            name: values.tolist() for name, values in asked.values.items()
        }
    order = read_request(to_bytes(mask_group.order(), terms), terms)
    assert isinstance(order, TrainRequest)
    assert order.mask_group is not None
    assert order.mask_group.keys.tolist() == mask_group.order().mask_group.keys.tolist()
    sent = masked(mask_group.states[0], order, reply_of(0))
    came_back = read_response(to_bytes(sent, terms), terms)
    assert isinstance(came_back, TrainResponse)
    assert came_back.masked.tolist() == sent.masked.tolist()


def test_where_nobody_masks_updates_a_mask_is_refused_and_where_everybody_does_a_plain_one_is() -> (
    None
):
    plain, terms, mask_group = MessageSchema(fedavg(), 3), MessageSchema(RECIPE, 3), Circle4()
    with pytest.raises(BadMessage, match="step must be one of nothing"):
        to_bytes(call(0, "keys"), plain)
    with pytest.raises(BadMessage, match="nobody masks updates"):
        to_bytes(mask_group.order(), plain)
    with pytest.raises(BadMessage, match="nobody masks updates"):
        to_bytes(masked(mask_group.states[0], mask_group.order(), reply_of(0)), plain)
    with pytest.raises(BadMessage, match="masked must be an array of uint64"):
        to_bytes(reply_of(0), terms)
    with pytest.raises(BadMessage, match="mask_group"):
        to_bytes(replace(mask_group.order(), mask_group=None), terms)
