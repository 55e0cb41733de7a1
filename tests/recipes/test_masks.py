"""What a client gives for a masked sum, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from thalweg.aggregation import Masked
from thalweg.core.errors import BadMessage
from thalweg.core.types import Ints
from thalweg.recipes import fedavg
from thalweg.recipes.masks import (
    AWAY,
    HEARD,
    LOST,
    MaskState,
    circle_of,
    given,
    masked_reply,
    new_mask_state,
    public_of,
    stream,
)
from thalweg.recipes.messages import Call, MaskStep, Octets, Order, Reply, Token
from thalweg.recipes.wire import Terms, errand_from, news_from, to_bytes

RULE = Masked()
RECIPE = replace(fedavg(), secrecy=RULE)
MEMBERS: Ints = np.arange(4)
UPDATE = np.array([0.5, -1.0, 0.25], dtype=np.float32)


def call(client: int, step: MaskStep, rnd: int = 0, **words: Octets) -> Call:
    return Call(rnd, client, step, MEMBERS, words=words)


class Circle4:
    """Four clients that have said their keys and written their letters."""

    def __init__(self) -> None:
        self.states = [new_mask_state() for _ in range(4)]
        keys = [self.give(call(client, "keys")) for client in range(4)]
        self.mask_keys = [bytes(token.words["mask_keys"][0]) for token in keys]
        self.post_keys = np.concatenate([token.words["post_keys"] for token in keys])
        self.letters = [
            self.give(call(client, "shares", post_keys=self.post_keys)).words["letters"]
            for client in range(4)
        ]

    def give(self, asked: Call) -> Token:
        self.states[asked.client], token = given(asked, self.states[asked.client], RULE)
        return token

    def opening(self, reader: int, fates: list[int]) -> Call:
        letters = np.stack([mine[reader] for mine in self.letters])
        column = np.array(fates, dtype=np.uint8)[:, None]
        return call(reader, "open", post_keys=self.post_keys, letters=letters, fates=column)

    def order(self) -> Order:
        one = np.zeros(1, dtype=np.int64)
        params = np.zeros((1, 3), dtype=np.float32)
        circle = circle_of([0, 1, 2, 3], self.mask_keys)
        return Order(0, 0, one, np.ones(1), params, circle=circle)


def reply_of(client: int, update: np.ndarray = UPDATE, steps: int = 2) -> Reply:
    zero, steps_made = np.zeros(1, dtype=np.int64), np.array([steps])
    return Reply(0, client, zero, update[None], 7, steps_made, np.ones(1), zero, zero)


def masked(state: MaskState, order: Order, reply: Reply) -> Reply:
    return masked_reply(reply, order, state, RULE, RECIPE)[1]


def test_masks_between_clients_cancel_and_each_ones_own_stays() -> None:
    circle, total = Circle4(), np.zeros(3, dtype=np.uint64)
    for client in range(4):
        reply = masked(circle.states[client], circle.order(), reply_of(client))
        assert reply.masked is not None
        total += reply.masked
    from thalweg.recipes.masks import Secrets

    for state in circle.states:
        total -= stream(Secrets(state.secret.tobytes(), 0, 0).seed, 3)
    mean = RULE.mean(total.view(np.int64), 4)
    np.testing.assert_allclose(mean, UPDATE, atol=1e-6)


def test_who_has_learnt_nothing_adds_nothing() -> None:
    circle = Circle4()
    idle, same = (
        masked(circle.states[0], circle.order(), reply_of(0, update, steps=0)).masked
        for update in (UPDATE, UPDATE * 0)
    )
    assert idle.tolist() == same.tolist()


def test_an_update_that_is_not_finite_has_no_loss_so_that_the_server_refuses_it() -> None:
    circle = Circle4()
    broken = masked(circle.states[0], circle.order(), reply_of(0, UPDATE * np.float32(np.nan)))
    assert np.isnan(broken.losses).all()
    assert broken.masked.tolist() == [0, 0, 0], "nor anything else"


def test_a_letter_is_for_one_reader() -> None:
    circle = Circle4()
    mine = circle.give(circle.opening(0, [HEARD] * 4)).words["shares"]
    assert mine.any(axis=1).all()
    stolen = circle.opening(1, [HEARD] * 4)
    letters = np.stack([letters[0] for letters in circle.letters])
    words = {**stolen.words, "letters": letters}
    assert not circle.give(replace(stolen, words=words)).words["shares"].any()


def test_of_the_lost_another_share_is_given_than_of_the_heard_and_none_of_the_absent() -> None:
    given_for = {}
    for fate in (HEARD, LOST, AWAY):
        circle = Circle4()
        circle_fates = [HEARD, HEARD, HEARD, fate]
        given_for[fate] = circle.give(circle.opening(0, circle_fates)).words["shares"][3]
    assert not given_for[AWAY].any()
    assert given_for[HEARD].any()
    assert given_for[LOST].any()


def test_a_round_is_opened_once() -> None:
    circle = Circle4()
    circle.give(circle.opening(0, [HEARD] * 4))
    with pytest.raises(BadMessage, match="opened already"):
        circle.give(circle.opening(0, [HEARD, HEARD, HEARD, LOST]))


def test_shares_are_made_once_and_not_for_a_round_that_is_over() -> None:
    circle = Circle4()
    with pytest.raises(BadMessage, match="made already"):
        circle.give(call(0, "shares", post_keys=circle.post_keys))
    circle.give(call(0, "shares", rnd=2, post_keys=circle.post_keys))
    with pytest.raises(BadMessage, match="made already"):
        circle.give(call(0, "shares", rnd=1, post_keys=circle.post_keys))
    with pytest.raises(BadMessage, match="nothing is to be opened"):
        circle.give(circle.opening(0, [HEARD] * 4))


def test_rehearsals_have_secrets_of_their_own_and_come_before_the_round() -> None:
    circle = Circle4()
    key = circle.give(call(0, "keys")).words["mask_keys"]
    other = circle.give(replace(call(0, "keys"), rehearsal=1)).words["mask_keys"]
    assert key.tolist() != other.tolist()
    with pytest.raises(BadMessage, match="made already"):
        circle.give(replace(call(0, "shares", post_keys=circle.post_keys), rehearsal=3))


@pytest.mark.parametrize(
    "fates, why",
    [
        ([LOST, HEARD, HEARD, HEARD], "cannot be true"),
        ([HEARD, HEARD, HEARD, 9], "cannot be true"),
        ([HEARD, HEARD, LOST, LOST], "2 of 4 clients were heard, 3 are needed"),
    ],
)
def test_nothing_is_opened_for_a_sum_of_too_few_or_without_oneself(
    fates: list[int], why: str
) -> None:
    circle = Circle4()
    with pytest.raises(BadMessage, match=why):
        circle.give(circle.opening(0, fates))


def test_a_sum_of_two_is_refused_and_so_is_one_of_others() -> None:
    state = new_mask_state()
    two = Call(0, 0, "shares", np.arange(2), words={"post_keys": np.zeros((2, 32), np.uint8)})
    with pytest.raises(BadMessage, match="at least 3"):
        given(two, state, RULE)
    with pytest.raises(BadMessage, match="not among the members"):
        given(replace(call(0, "keys"), client=8), state, RULE)


def test_an_update_is_masked_with_those_who_have_shares_and_under_the_own_key() -> None:
    circle = Circle4()
    with pytest.raises(BadMessage, match="no shares of its masks"):
        masked(circle.states[0], replace(circle.order(), rnd=1), replace(reply_of(0), rnd=1))
    swapped = circle_of([0, 1, 2, 3], circle.mask_keys[::-1])
    with pytest.raises(BadMessage, match="not its own"):
        masked(circle.states[0], replace(circle.order(), circle=swapped), reply_of(0))
    two = circle_of([0, 1], circle.mask_keys[:2])
    with pytest.raises(BadMessage, match="says too much"):
        masked(circle.states[0], replace(circle.order(), circle=two), reply_of(0))


def test_one_update_is_masked_for_a_sum_whoever_is_said_to_be_in_it() -> None:
    circle = Circle4()
    three = circle_of([0, 1, 2], circle.mask_keys[:3])
    state, _ = masked_reply(reply_of(0), circle.order(), circle.states[0], RULE, RECIPE)
    for order in (circle.order(), replace(circle.order(), circle=three)):
        with pytest.raises(BadMessage, match="was sent already"):
            masked(state, order, reply_of(0))


def test_a_key_that_is_none_is_refused() -> None:
    circle = Circle4()
    zeros = np.zeros_like(circle.post_keys)
    with pytest.raises(BadMessage, match="a public key is none"):
        circle.give(call(0, "shares", rnd=1, post_keys=zeros))


def test_the_same_secret_gives_the_same_keys_after_a_restart() -> None:
    state = new_mask_state()
    first, again = (given(call(0, "keys", rnd=5), state, RULE)[1] for _ in range(2))
    assert first.words["mask_keys"].tolist() == again.words["mask_keys"].tolist()
    assert len(public_of(bytes(range(32)))) == 32


# --- on the wire ---


def test_calls_tokens_and_masked_replies_cross_the_wire() -> None:
    terms, circle = Terms(RECIPE, 3), Circle4()
    for asked in (call(0, "keys"), circle.opening(0, [HEARD] * 4)):
        came = errand_from(to_bytes(asked, terms), terms)
        assert isinstance(came, Call)
        assert {name: words.tolist() for name, words in came.words.items()} == {
            name: words.tolist() for name, words in asked.words.items()
        }
    order = errand_from(to_bytes(circle.order(), terms), terms)
    assert isinstance(order, Order)
    assert order.circle is not None
    assert order.circle.keys.tolist() == circle.order().circle.keys.tolist()
    sent = masked(circle.states[0], order, reply_of(0))
    came_back = news_from(to_bytes(sent, terms), terms)
    assert isinstance(came_back, Reply)
    assert came_back.masked.tolist() == sent.masked.tolist()


def test_where_nobody_masks_updates_a_mask_is_refused_and_where_everybody_does_a_plain_one_is() -> (
    None
):
    plain, terms, circle = Terms(fedavg(), 3), Terms(RECIPE, 3), Circle4()
    with pytest.raises(BadMessage, match="step must be one of nothing"):
        to_bytes(call(0, "keys"), plain)
    with pytest.raises(BadMessage, match="nobody masks updates"):
        to_bytes(circle.order(), plain)
    with pytest.raises(BadMessage, match="nobody masks updates"):
        to_bytes(masked(circle.states[0], circle.order(), reply_of(0)), plain)
    with pytest.raises(BadMessage, match="masked must be an array of uint64"):
        to_bytes(reply_of(0), terms)
    with pytest.raises(BadMessage, match="circle"):
        to_bytes(replace(circle.order(), circle=None), terms)
