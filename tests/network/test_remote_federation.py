"""The server's side of a network, with clients that are a few lines each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_roster, train_request_for
from thalweg.aggregation import ConstantDiscount
from thalweg.bank import FedDrift
from thalweg.bank.feddrift import COSTS, SAMPLES
from thalweg.core.errors import Diverged
from thalweg.core.types import Job, Updates
from thalweg.federation import Message, SurveyRequest, SurveyResponse, TrainRequest, TrainResponse
from thalweg.memory import Fifo
from thalweg.network.limits import Limits
from thalweg.network.remote_federation import Packet, RemoteFederation
from thalweg.network.wire import MessageSchema, read_request, to_bytes
from thalweg.recipes import Recipe
from thalweg.selection import Dpcs

TERMS = MessageSchema(
    Recipe(name="plain", memory=Fifo(), selection=Dpcs(), bank=FedDrift()), num_params=2
)
BANK = np.array([[1, 2], [3, 4]], dtype=np.float32)
Client = Callable[[Any], list[tuple[int, Message | bytes]]]


def reply(order: TrainRequest, **changes: Any) -> TrainResponse:
    deltas = order.params * 10 + order.client
    num = len(order.models)
    none, losses = np.zeros(num, dtype=np.int64), np.full(num, 0.5)
    plain = TrainResponse(
        order.rnd, order.client, order.models, deltas, 5, none + 1, losses, none, none
    )
    return replace(plain, **changes)


def network(client: Client) -> RemoteFederation:
    """Every client answers a letter like this."""

    def post(letters: Iterable[Packet]) -> Iterator[Packet]:
        for _, payload in letters:
            for sender, message in client(read_request(payload, TERMS)):
                yield sender, message if isinstance(message, bytes) else to_bytes(message, TERMS)

    return RemoteFederation(TERMS, post, lambda rnd: some_roster([0, 1, 2], 3, rnd=rnd))


def train(federation: RemoteFederation) -> Updates:
    return federation.train([Job(2, 1), Job(0), Job(1)], BANK, 4)


def test_everybody_gets_its_own_model_and_a_row() -> None:
    federation = network(lambda order: [(order.client, reply(order))])
    updates = train(federation)
    assert updates.clients.tolist() == [0, 1, 2]
    assert updates.models.tolist() == [0, 0, 1]
    assert updates.deltas.tolist() == [[10, 20], [11, 21], [32, 42]]
    assert updates.extra_metrics == {}
    assert federation.roster(4).present.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (lambda order: [(1, b"nonsense")], "client 1: 8 bytes are not a tree of Thalweg"),
        (
            lambda order: [(1, reply(order, rnd=3))],
            "client 1: .*rnd is 3, asked was 4; it came too",
        ),
        (lambda order: [(2, reply(order))], "client 2: "),
        (lambda order: [(9, reply(order))], "client 9: nobody asked"),
        (lambda order: [(1, reply(order, client=0))], "client 1: .*client is 0, asked was 1"),
        (
            lambda order: [(1, reply(order, losses=np.array([np.nan])))],
            "client 1: TrainResponse: losses is not finite",
        ),
    ],
)
def test_a_reply_that_cannot_be_used_counts_as_not_heard(odd: Client, why: str) -> None:
    federation = network(
        lambda order: odd(order) if order.client == 1 else [(order.client, reply(order))]
    )
    updates = train(federation)
    assert updates.clients.tolist() == [0, 2]
    assert updates.extra_metrics == {"rejected": 1}
    (rejected,) = federation.rejected
    assert re.match(why, rejected)


def test_the_first_of_two_replies_counts() -> None:
    federation = network(
        lambda order: [
            (order.client, reply(order)),
            (order.client, reply(order, deltas=np.zeros((1, 2), dtype=np.float32))),
        ]
    )
    updates = train(federation)
    assert updates.deltas[0].tolist() == [10, 20]
    assert updates.extra_metrics == {"rejected": 3}


def test_nobody_may_be_heard_at_all() -> None:
    assert len(train(network(lambda order: []))) == 0


def test_one_client_that_diverged_is_left_out_but_all_of_them_stop_the_run() -> None:
    broken = np.array([[np.inf, 0]], dtype=np.float32)
    with pytest.raises(Diverged, match="TrainResponse: deltas is not finite"):
        train(network(lambda order: [(order.client, reply(order, deltas=broken))]))


def test_one_that_says_so_while_nobody_else_is_heard_does_not() -> None:
    broken = np.array([[np.inf, 0]], dtype=np.float32)
    alone = network(lambda order: [(0, reply(order, deltas=broken))] if order.client == 0 else [])
    assert train(alone).extra_metrics == {"rejected": 1}
    assert len(alone.train([Job(0, 0)], BANK, 1)) == 0, "nor if nobody else was asked"


def test_refusals_are_counted_anew_in_every_round() -> None:
    federation = network(lambda order: [(order.client, reply(order)), (7, b"")])
    assert train(federation).extra_metrics == {"rejected": 3}
    assert train(federation).extra_metrics == {"rejected": 3}


def test_two_models_for_one_client_are_one_order_and_two_rows() -> None:
    orders: list[TrainRequest] = []
    federation = network(lambda order: [(order.client, reply(order))])
    updates = federation.train([Job(0, 1), Job(2, 0), Job(0, 0)], BANK, 0)
    assert updates.clients.tolist() == [0, 0, 2]
    assert updates.models.tolist() == [0, 1, 0]
    assert updates.deltas.tolist() == [[10, 20], [30, 40], [12, 22]]
    federation = network(lambda order: orders.append(order) or [])  # type: ignore[func-returns-value]
    federation.train([Job(0, 1), Job(0, 0)], BANK, 0)
    assert [order.params.tolist() for order in orders] == [BANK.tolist()]


def test_answers_become_a_table_and_silence_is_nan() -> None:
    asked: list[SurveyRequest] = []

    def client(question: SurveyRequest) -> list[tuple[int, Message | bytes]]:
        asked.append(question)
        values = {COSTS: np.array([question.client, 0.5]), SAMPLES: np.ones(1)}
        odd = {COSTS: np.array([7.0]), SAMPLES: np.ones(1)}
        answer = SurveyResponse(question.rnd, question.client, question.stage, values)
        return {
            0: [(0, answer)],
            1: [],
            2: [(2, replace(answer, values=odd))],
            3: [(3, replace(answer, values={}))],
            4: [(4, answer), (0, answer), (4, b"")],
        }[question.client]

    federation = network(client)
    tables = federation.survey(np.array([0, 1, 2, 3, 4]), "bank", BANK, 6)
    assert tables[COSTS][[0, 4]].tolist() == [[0, 0.5], [4, 0.5]]
    assert np.isnan(tables[COSTS][1:4]).all()
    assert asked[0].bank.tolist() == BANK.tolist()
    assert train(network(lambda order: [])).extra_metrics == {}


def test_models_are_only_sent_to_policies_that_show_them() -> None:
    asked: list[SurveyRequest] = []
    federation = network(lambda question: asked.append(question) or [])  # type: ignore[func-returns-value]
    assert federation.survey(np.array([0, 1]), "selection", BANK, 6) == {}
    assert [question.bank.shape for question in asked] == [(0, 2), (0, 2)]


# --- replies to orders of earlier rounds ---

PATIENT = MessageSchema(
    replace(TERMS.recipe, staleness=ConstantDiscount(max_staleness=2)), num_params=2
)


class Network:
    """Clients that answer at once, but for some, whose replies are put in the next letters by the test."""

    def __init__(self, terms: MessageSchema = PATIENT, **options: Any) -> None:
        self.terms, self.slow, self.extra = terms, set[int](), list[Packet]()
        roster = some_roster([0, 1, 2], 3)
        self.federation = RemoteFederation(terms, self.post, lambda rnd: roster, **options)

    def post(self, letters: Iterable[Packet]) -> Iterator[Packet]:
        extra, self.extra = self.extra, []
        yield from extra
        for client, payload in letters:
            message = read_request(payload, self.terms)
            if isinstance(message, TrainRequest) and client not in self.slow:
                yield client, to_bytes(reply(message), self.terms)

    def play(self, rnd: int, slow: Iterable[int] = (), probe_round: int = 0) -> Updates:
        self.slow = set(slow)
        jobs = [Job(client, probe_round=probe_round) for client in range(3)]
        return self.federation.train(jobs, BANK[:1], rnd)

    def comes(self, sender: int, rnd: int, **changes: Any) -> None:
        """This letter comes first when the next ones are sent."""
        order = train_request_for(rnd, sender, BANK[0])
        self.extra.append((sender, to_bytes(reply(order, **changes), self.terms)))


def who_and_when(updates: Updates, rnd: int) -> list[tuple[int, int]]:
    rounds = rnd - updates.staleness(rnd)
    return list(zip(updates.clients.tolist(), rounds.tolist(), strict=True))


def test_a_late_reply_is_handed_on_with_its_round() -> None:
    network = Network()
    assert who_and_when(network.play(4, slow=[1]), 4) == [(0, 4), (2, 4)]
    network.comes(1, rnd=4)
    updates = network.play(5)
    assert who_and_when(updates, 5) == [(0, 5), (1, 5), (2, 5), (1, 4)]
    assert updates.extra_metrics == {}


@pytest.mark.parametrize(
    ("rnd", "when", "why"),
    [
        (6, {}, None),
        (7, {}, "client 1: .*rnd is 4, asked was 7; it came too late"),  # two rounds at most
        (6, {"rnd": 3}, "client 1: .*rnd is 3, asked was 6; it came too late"),  # never asked
        (6, {"models": np.array([1])}, r"client 1: .*models is \[1\], asked was \[0\]"),
        (6, {"client": 2}, "client 1: .*client is 2, asked was 1"),
        (6, {"probe_round": 1}, "client 1: .*probe_round is 1, asked was 0"),
    ],
)
def test_only_the_reply_to_an_open_order_is_handed_on(
    rnd: int, when: dict[str, int], why: str | None
) -> None:
    network = Network()
    network.play(4, slow=[1])
    network.play(5, slow=[1])
    network.comes(1, **{"rnd": 4, **when})
    updates = network.play(rnd, slow=[1])
    if why is None:
        assert who_and_when(updates, rnd) == [(0, rnd), (2, rnd), (1, 4)]
    else:
        assert who_and_when(updates, rnd) == [(0, rnd), (2, rnd)]
        assert re.match(why, network.federation.rejected[0])


def test_a_recipe_that_refuses_is_handed_no_late_reply() -> None:
    network = Network(TERMS)
    network.play(4, slow=[1])
    network.comes(1, rnd=4)
    assert who_and_when(network.play(5, slow=[1]), 5) == [(0, 5), (2, 5)]
    assert network.federation.rejected == [
        "client 1: TrainResponse of client 1: rnd is 4, asked was 5; it came too late, or from somebody else."
    ]


def test_a_late_reply_counts_once() -> None:
    network = Network()
    network.play(4, slow=[1])
    for _ in range(2):
        network.comes(1, rnd=4)
    assert who_and_when(network.play(5, slow=[1]), 5) == [(0, 5), (2, 5), (1, 4)]
    assert len(network.federation.rejected) == 1
    network.comes(1, rnd=4)
    assert who_and_when(network.play(6, slow=[1]), 6) == [(0, 6), (2, 6)]
    assert len(network.federation.rejected) == 1


def test_a_newer_reply_closes_older_orders() -> None:
    network = Network()
    network.play(4, slow=[1])
    network.play(5)
    network.comes(1, rnd=4)
    assert who_and_when(network.play(6), 6) == [(0, 6), (1, 6), (2, 6)]
    assert len(network.federation.rejected) == 1


def test_a_late_reply_that_comes_with_answers_waits_for_the_replies() -> None:
    network = Network()
    network.play(4, slow=[1])
    network.comes(1, rnd=4)
    assert network.federation.survey(np.array([0, 2]), "selection", BANK[:1], 5) == {}
    updates = network.play(5, slow=[1])
    assert who_and_when(updates, 5) == [(0, 5), (2, 5), (1, 4)]
    assert updates.extra_metrics == {}


def test_a_late_reply_that_comes_with_a_rehearsal_waits_for_the_replies() -> None:
    network = Network()
    network.play(4, slow=[1])
    network.comes(1, rnd=4)
    network.slow = {0, 1, 2}
    assert len(network.play(5, slow=[0, 1, 2], probe_round=1)) == 0
    assert who_and_when(network.play(5, slow=[0, 1, 2]), 5) == [(1, 4)]


def test_a_late_reply_to_a_rehearsal_is_not_taken_for_one_that_counts() -> None:
    network = Network()
    network.play(5, slow=[1], probe_round=1)
    network.comes(1, rnd=5, probe_round=1)
    assert who_and_when(network.play(5, slow=[1]), 5) == [(0, 5), (2, 5)]
    assert re.match("client 1: .*probe_round is 1, asked was 0", network.federation.rejected[0])


def test_orders_that_were_open_before_a_restart_are_still_open() -> None:
    network = Network(awaited=np.array([[1, 4]]))
    network.comes(1, rnd=4)
    assert who_and_when(network.play(5, slow=[1]), 5) == [(0, 5), (2, 5), (1, 4)]


def test_so_many_orders_are_remembered_as_can_be_answered_and_no_models() -> None:
    network = Network()
    for rnd in range(20):
        network.play(rnd, slow=[0, 1, 2])
    still = network.federation._pending
    assert [sorted(still[client]) for client in range(3)] == [[18, 19]] * 3
    assert all(len(order.params) == 0 for orders in still.values() for order in orders.values())
    network.play(20)
    assert network.federation._pending == {}


# --- what cannot be true ---


def lying(limits: Limits, **claims: Any) -> RemoteFederation:
    """Client 1 claims something, the others are honest."""
    honest = network(
        lambda order: [(order.client, reply(order, **(claims if order.client == 1 else {})))]
    )
    return RemoteFederation(TERMS, honest._transport, honest.roster, limits=limits)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"deltas": np.full((1, 2), 1e30, dtype=np.float32)}, r"the update has length 1\.41e\+30"),
        ({"num_samples": 101}, "num_samples is 101, at most 100 is possible"),
        ({"num_steps": np.array([1 << 40])}, "num_steps is 1099511627776, at most 10"),
        ({"num_tested": np.array([101])}, "num_tested is 101, at most 50"),
        ({"losses": np.array([1e12])}, r"losses is 1e\+12, at most 1e\+09"),
    ],
)
def test_what_is_beyond_the_limits_never_reaches_the_model(
    claims: dict[str, Any], why: str
) -> None:
    federation = lying(Limits(max_samples=100, max_tested=50, max_steps=10), **claims)
    updates = train(federation)
    assert updates.clients.tolist() == [0, 2]
    assert updates.extra_metrics == {"rejected": 1}
    (refusal,) = updates.rejections
    assert refusal.client == 1
    assert re.search(why, refusal.reason)
    assert federation.rejected == [f"client 1: {refusal.reason}"]


def test_an_update_may_be_judged_by_the_length_of_most() -> None:
    deltas = np.full((1, 2), 5000, dtype=np.float32)
    far = lying(Limits(norm_factor=10), deltas=deltas)
    jobs = [Job(0), Job(1), Job(2)]
    updates = far.train(jobs, BANK, 4)
    assert updates.clients.tolist() == [0, 2]
    assert updates.rejections[0].reason == (
        "TrainResponse: the update has length 7.07e+03, more than 10 times that of most, 25.1."
    )
    assert lying(Limits(), deltas=deltas).train(jobs, BANK, 4).clients.tolist() == [0, 1, 2]


def test_a_late_reply_is_checked_like_any_other() -> None:
    network = Network()
    network.play(4, slow=[1])
    network.comes(1, rnd=4, num_samples=1 << 50)
    assert who_and_when(network.play(5), 5) == [(0, 5), (1, 5), (2, 5)]
    assert re.match("client 1: TrainResponse: num_samples is", network.federation.rejected[0])


def test_an_answer_that_cannot_be_true_is_silence() -> None:
    def client(question: SurveyRequest) -> list[tuple[int, Message | bytes]]:
        costs = np.array([0.1, -5.0 if question.client == 1 else 0.2])
        values = {COSTS: costs, SAMPLES: np.array([10.0])}
        return [
            (
                question.client,
                SurveyResponse(question.rnd, question.client, question.stage, values),
            ),
        ]

    federation = network(client)
    tables = federation.survey(np.array([0, 1, 2]), "bank", BANK, 6)
    assert np.isnan(tables[COSTS]).any(axis=1).tolist() == [False, True, False]
    nobody = network(lambda order: [])
    federation._transport = nobody._transport
    (refusal,) = train(federation).rejections
    assert refusal == (
        1,
        "SurveyResponse: model_costs goes from -5 to 0.1, but only 0 to inf is possible.",
    )
