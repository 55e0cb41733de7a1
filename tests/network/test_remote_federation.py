"""The server's side of a network, with minimal clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.examples import some_roster, train_request_for
from thalweg.aggregation import ConstantDiscount
from thalweg.bank import FedDrift, FedRc
from thalweg.bank.feddrift import COSTS, SAMPLES
from thalweg.core.errors import Diverged
from thalweg.core.types import Job, Updates
from thalweg.federation import SurveyRequest, SurveyResponse, TrainRequest, TrainResponse
from thalweg.memory import Fifo
from thalweg.network.limits import Limits, bound_survey_values
from thalweg.network.remote_federation import Packet, RemoteFederation
from thalweg.network.wire import Message, MessageSchema, read_request, to_bytes
from thalweg.recipes import Recipe
from thalweg.selection import Dpcs, PowerOfChoice
from thalweg.selection.power_of_choice import LOSS

SCHEMA = MessageSchema(
    Recipe(name="plain", memory=Fifo(), selection=Dpcs(), bank=FedDrift()), num_params=2
)
BANK = np.array([[1, 2], [3, 4]], dtype=np.float32)
Client = Callable[[Any], list[tuple[int, Message | bytes]]]


def make_response(request: TrainRequest, **changes: Any) -> TrainResponse:
    deltas = request.params * 10 + request.client
    num = len(request.models)
    none, losses = np.zeros(num, dtype=np.int64), np.full(num, 0.5)
    plain = TrainResponse(
        request.rnd, request.client, request.models, deltas, 5, none + 1, losses, none, none
    )
    return replace(plain, **changes)


def network(client: Client, schema: MessageSchema = SCHEMA) -> RemoteFederation:
    """A federation in which `client` answers every request."""

    def transport(packets: Iterable[Packet]) -> Iterator[Packet]:
        for _, payload in packets:
            for sender, message in client(read_request(payload, schema)):
                yield sender, message if isinstance(message, bytes) else to_bytes(message, schema)

    return RemoteFederation(schema, transport, lambda rnd: some_roster([0, 1, 2], 3, rnd=rnd))


def train(federation: RemoteFederation) -> Updates:
    return federation.train([Job(2, 1), Job(0), Job(1)], BANK, 4)


def test_each_client_receives_its_model_and_has_one_row() -> None:
    federation = network(lambda request: [(request.client, make_response(request))])
    updates = train(federation)
    assert updates.clients.tolist() == [0, 1, 2]
    assert updates.models.tolist() == [0, 0, 1]
    assert updates.deltas.tolist() == [[10, 20], [11, 21], [32, 42]]
    assert updates.extra_metrics == {}
    assert federation.roster(4).present.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        (lambda request: [(1, b"nonsense")], "client 1: 8 bytes are not a tree of Thalweg"),
        (
            lambda request: [(1, make_response(request, rnd=3))],
            "client 1: .*rnd is 3, expected 4; the response is",
        ),
        (lambda request: [(2, make_response(request))], "client 2: "),
        (
            lambda request: [(9, make_response(request))],
            "client 9: no response of this client was expected",
        ),
        (
            lambda request: [(1, make_response(request, client=0))],
            "client 1: .*client is 0, expected 1",
        ),
        (
            lambda request: [(1, make_response(request, losses=np.array([np.nan])))],
            "client 1: TrainResponse: losses is not finite",
        ),
    ],
)
def test_invalid_response_is_rejected_and_the_round_continues(odd: Client, why: str) -> None:
    federation = network(
        lambda request: (
            odd(request) if request.client == 1 else [(request.client, make_response(request))]
        )
    )
    updates = train(federation)
    assert updates.clients.tolist() == [0, 2]
    assert updates.extra_metrics == {"rejected": 1}
    (rejected,) = federation.rejected
    assert re.match(why, rejected)


def test_the_first_of_two_responses_counts() -> None:
    federation = network(
        lambda request: [
            (request.client, make_response(request)),
            (request.client, make_response(request, deltas=np.zeros((1, 2), dtype=np.float32))),
        ]
    )
    updates = train(federation)
    assert updates.deltas[0].tolist() == [10, 20]
    assert updates.extra_metrics == {"rejected": 3}


def test_a_round_may_have_no_responses() -> None:
    assert len(train(network(lambda request: []))) == 0


def test_the_run_stops_if_all_clients_diverged() -> None:
    broken = np.array([[np.inf, 0]], dtype=np.float32)
    with pytest.raises(Diverged, match="TrainResponse: deltas is not finite"):
        train(network(lambda request: [(request.client, make_response(request, deltas=broken))]))


def test_the_run_continues_if_a_single_responding_client_diverged() -> None:
    broken = np.array([[np.inf, 0]], dtype=np.float32)
    alone = network(
        lambda request: [(0, make_response(request, deltas=broken))] if request.client == 0 else []
    )
    assert train(alone).extra_metrics == {"rejected": 1}
    assert len(alone.train([Job(0, 0)], BANK, 1)) == 0, "also if it is the only client of the round"


def test_rejections_are_counted_per_round() -> None:
    federation = network(lambda request: [(request.client, make_response(request)), (7, b"")])
    assert train(federation).extra_metrics == {"rejected": 3}
    assert train(federation).extra_metrics == {"rejected": 3}


def test_two_models_for_one_client_are_one_request_and_two_rows() -> None:
    requests: list[TrainRequest] = []
    several = replace(SCHEMA, recipe=replace(SCHEMA.recipe, bank=FedRc(2)))
    federation = network(lambda request: [(request.client, make_response(request))], several)
    updates = federation.train([Job(0, 1), Job(2, 0), Job(0, 0)], BANK, 0)
    assert updates.clients.tolist() == [0, 0, 2]
    assert updates.models.tolist() == [0, 1, 0]
    assert updates.deltas.tolist() == [[10, 20], [30, 40], [12, 22]]
    federation = network(lambda request: requests.append(request) or [], several)  # type: ignore[func-returns-value]
    federation.train([Job(0, 1), Job(0, 0)], BANK, 0)
    assert [request.params.tolist() for request in requests] == [BANK.tolist()]


def test_missing_and_odd_survey_responses_are_nan_rows() -> None:
    requests: list[SurveyRequest] = []

    def client(request: SurveyRequest) -> list[tuple[int, Message | bytes]]:
        requests.append(request)
        values = {COSTS: np.array([request.client, 0.5]), SAMPLES: np.ones(1)}
        odd = {COSTS: np.array([7.0]), SAMPLES: np.ones(1)}
        response = SurveyResponse(request.rnd, request.client, request.stage, values)
        return {
            0: [(0, response)],
            1: [],
            2: [(2, replace(response, values=odd))],
            3: [(3, replace(response, values={}))],
            4: [(4, response), (0, response), (4, b"")],
        }[request.client]

    federation = network(client)
    tables = federation.survey(np.array([0, 1, 2, 3, 4]), "bank", BANK, 6)
    assert tables[COSTS][[0, 4]].tolist() == [[0, 0.5], [4, 0.5]]
    assert np.isnan(tables[COSTS][1:4]).all()
    assert requests[0].bank.tolist() == BANK.tolist()
    assert train(network(lambda request: [])).extra_metrics == {}


def test_survey_sends_models_only_if_the_policy_needs_them() -> None:
    requests: list[SurveyRequest] = []
    federation = network(lambda request: requests.append(request) or [])  # type: ignore[func-returns-value]
    assert federation.survey(np.array([0, 1]), "selection", BANK, 6) == {}
    assert [request.bank.shape for request in requests] == [(0, 2), (0, 2)]


# --- late responses ---

STALE_SCHEMA = MessageSchema(
    replace(SCHEMA.recipe, staleness=ConstantDiscount(max_staleness=2)), num_params=2
)


class Network:
    """Clients that respond at once, except slow ones, whose responses the test delivers later."""

    def __init__(self, schema: MessageSchema = STALE_SCHEMA, **options: Any) -> None:
        self.schema, self.slow, self.extra = schema, set[int](), list[Packet]()
        roster = some_roster([0, 1, 2], 3)
        self.federation = RemoteFederation(schema, self.transport, lambda rnd: roster, **options)

    def transport(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        extra, self.extra = self.extra, []
        yield from extra
        for client, payload in packets:
            message = read_request(payload, self.schema)
            if isinstance(message, TrainRequest) and client not in self.slow:
                yield client, to_bytes(make_response(message), self.schema)

    def run_round(self, rnd: int, slow: Iterable[int] = (), probe_round: int = 0) -> Updates:
        self.slow = set(slow)
        jobs = [Job(client, probe_round=probe_round) for client in range(3)]
        return self.federation.train(jobs, BANK[:1], rnd)

    def deliver_late(self, sender: int, rnd: int, **changes: Any) -> None:
        """Deliver this response first in the next exchange."""
        request = train_request_for(rnd, sender, BANK[0])
        self.extra.append((sender, to_bytes(make_response(request, **changes), self.schema)))


def clients_and_rounds(updates: Updates, rnd: int) -> list[tuple[int, int]]:
    rounds = rnd - updates.staleness(rnd)
    return list(zip(updates.clients.tolist(), rounds.tolist(), strict=True))


def test_late_response_joins_the_next_round_with_its_own_round_number() -> None:
    network = Network()
    assert clients_and_rounds(network.run_round(4, slow=[1]), 4) == [(0, 4), (2, 4)]
    network.deliver_late(1, rnd=4)
    updates = network.run_round(5)
    assert clients_and_rounds(updates, 5) == [(0, 5), (1, 5), (2, 5), (1, 4)]
    assert updates.extra_metrics == {}


@pytest.mark.parametrize(
    ("rnd", "when", "why"),
    [
        (6, {}, None),
        (7, {}, "client 1: .*rnd is 4, expected 7; the response is late"),  # older than two rounds
        (
            6,
            {"rnd": 3},
            "client 1: .*rnd is 3, expected 6; the response is late",
        ),  # never requested
        (6, {"models": np.array([1])}, r"client 1: .*models is \[1\], expected \[0\]"),
        (6, {"client": 2}, "client 1: .*client is 2, expected 1"),
        (6, {"probe_round": 1}, "client 1: .*probe_round is 1, expected 0"),
    ],
)
def test_late_response_must_match_a_pending_request(
    rnd: int, when: dict[str, int], why: str | None
) -> None:
    network = Network()
    network.run_round(4, slow=[1])
    network.run_round(5, slow=[1])
    network.deliver_late(1, **{"rnd": 4, **when})
    updates = network.run_round(rnd, slow=[1])
    if why is None:
        assert clients_and_rounds(updates, rnd) == [(0, rnd), (2, rnd), (1, 4)]
    else:
        assert clients_and_rounds(updates, rnd) == [(0, rnd), (2, rnd)]
        assert re.match(why, network.federation.rejected[0])


def test_late_response_is_rejected_without_a_staleness_policy() -> None:
    network = Network(SCHEMA)
    network.run_round(4, slow=[1])
    network.deliver_late(1, rnd=4)
    assert clients_and_rounds(network.run_round(5, slow=[1]), 5) == [(0, 5), (2, 5)]
    assert network.federation.rejected == [
        "client 1: TrainResponse of client 1: rnd is 4, expected 5; the response is late, or from "
        "another client."
    ]


def test_late_response_counts_once() -> None:
    network = Network()
    network.run_round(4, slow=[1])
    for _ in range(2):
        network.deliver_late(1, rnd=4)
    assert clients_and_rounds(network.run_round(5, slow=[1]), 5) == [(0, 5), (2, 5), (1, 4)]
    assert len(network.federation.rejected) == 1
    network.deliver_late(1, rnd=4)
    assert clients_and_rounds(network.run_round(6, slow=[1]), 6) == [(0, 6), (2, 6)]
    assert len(network.federation.rejected) == 1


def test_newer_response_closes_older_requests() -> None:
    network = Network()
    network.run_round(4, slow=[1])
    network.run_round(5)
    network.deliver_late(1, rnd=4)
    assert clients_and_rounds(network.run_round(6), 6) == [(0, 6), (1, 6), (2, 6)]
    assert len(network.federation.rejected) == 1


def test_late_response_during_a_survey_joins_the_next_training() -> None:
    network = Network()
    network.run_round(4, slow=[1])
    network.deliver_late(1, rnd=4)
    assert network.federation.survey(np.array([0, 2]), "selection", BANK[:1], 5) == {}
    updates = network.run_round(5, slow=[1])
    assert clients_and_rounds(updates, 5) == [(0, 5), (2, 5), (1, 4)]
    assert updates.extra_metrics == {}


def test_late_response_during_a_probe_round_joins_the_next_training() -> None:
    network = Network()
    network.run_round(4, slow=[1])
    network.deliver_late(1, rnd=4)
    network.slow = {0, 1, 2}
    assert len(network.run_round(5, slow=[0, 1, 2], probe_round=1)) == 0
    assert clients_and_rounds(network.run_round(5, slow=[0, 1, 2]), 5) == [(1, 4)]


def test_late_response_to_a_probe_round_is_rejected() -> None:
    network = Network()
    network.run_round(5, slow=[1], probe_round=1)
    network.deliver_late(1, rnd=5, probe_round=1)
    assert clients_and_rounds(network.run_round(5, slow=[1]), 5) == [(0, 5), (2, 5)]
    assert re.match("client 1: .*probe_round is 1, expected 0", network.federation.rejected[0])


def test_pending_requests_survive_a_restart() -> None:
    network = Network(awaited=np.array([[1, 4]]))
    network.deliver_late(1, rnd=4)
    assert clients_and_rounds(network.run_round(5, slow=[1]), 5) == [(0, 5), (2, 5), (1, 4)]


def test_pending_requests_are_bounded_and_hold_no_parameters() -> None:
    network = Network()
    for rnd in range(20):
        network.run_round(rnd, slow=[0, 1, 2])
    still = network.federation._pending
    assert [sorted(still[client]) for client in range(3)] == [[18, 19]] * 3
    assert all(
        len(request.params) == 0 for requests in still.values() for request in requests.values()
    )
    network.run_round(20)
    assert network.federation._pending == {}


# --- limits ---


def with_false_values(limits: Limits, **values: Any) -> RemoteFederation:
    """Client 1 sends these values, the others are honest."""
    honest = network(
        lambda request: [
            (request.client, make_response(request, **(values if request.client == 1 else {})))
        ]
    )
    return RemoteFederation(SCHEMA, honest._transport, honest.roster, limits=limits)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"deltas": np.full((1, 2), 1e30, dtype=np.float32)}, r"the update has norm 1\.41e\+30"),
        ({"num_samples": 101}, "num_samples is 101, at most 100 is allowed"),
        ({"num_steps": np.array([1 << 40])}, "num_steps is 1099511627776, at most 10"),
        ({"num_tested": np.array([101])}, "num_tested is 101, at most 50"),
        ({"losses": np.array([1e12])}, r"losses is 1e\+12, at most 1e\+09"),
    ],
)
def test_values_beyond_the_limits_are_rejected(values: dict[str, Any], why: str) -> None:
    federation = with_false_values(Limits(max_samples=100, max_tested=50, max_steps=10), **values)
    updates = train(federation)
    assert updates.clients.tolist() == [0, 2]
    assert updates.extra_metrics == {"rejected": 1}
    (rejection,) = updates.rejections
    assert rejection.client == 1
    assert re.search(why, rejection.reason)
    assert federation.rejected == [f"client 1: {rejection.reason}"]


def test_update_beyond_a_multiple_of_the_median_norm_is_rejected() -> None:
    deltas = np.full((1, 2), 5000, dtype=np.float32)
    far = with_false_values(Limits(norm_factor=10), deltas=deltas)
    jobs = [Job(0), Job(1), Job(2)]
    updates = far.train(jobs, BANK, 4)
    assert updates.clients.tolist() == [0, 2]
    assert updates.rejections[0].reason == (
        "TrainResponse: the update has norm 7.07e+03, at most 10 times the median 25.1 is allowed "
        "(norm_factor)."
    )
    assert with_false_values(Limits(), deltas=deltas).train(jobs, BANK, 4).clients.tolist() == [
        0,
        1,
        2,
    ]


def test_late_response_is_checked_against_the_limits() -> None:
    network = Network()
    network.run_round(4, slow=[1])
    network.deliver_late(1, rnd=4, num_samples=1 << 50)
    assert clients_and_rounds(network.run_round(5), 5) == [(0, 5), (1, 5), (2, 5)]
    assert re.match("client 1: TrainResponse: num_samples is", network.federation.rejected[0])


def test_impossible_survey_response_is_a_nan_row() -> None:
    def client(request: SurveyRequest) -> list[tuple[int, Message | bytes]]:
        costs = np.array([0.1, -5.0 if request.client == 1 else 0.2])
        values = {COSTS: costs, SAMPLES: np.array([10.0])}
        return [
            (
                request.client,
                SurveyResponse(request.rnd, request.client, request.stage, values),
            ),
        ]

    federation = network(client)
    tables = federation.survey(np.array([0, 1, 2]), "bank", BANK, 6)
    assert np.isnan(tables[COSTS]).any(axis=1).tolist() == [False, True, False]
    no_responses = network(lambda request: [])
    federation._transport = no_responses._transport
    (rejection,) = train(federation).rejections
    assert rejection == (
        1,
        "SurveyResponse: model_costs goes from -5 to 0.1, but only 0 to inf is possible.",
    )


def test_replaced_values_are_reported_and_counted() -> None:
    lying = with_false_values(Limits(), losses=np.array([1e9]))
    updates = lying.train([Job(0), Job(1), Job(2)], BANK, 4)
    assert updates.clients.tolist() == [0, 1, 2]
    assert updates.losses.tolist() == [0.5, 0.5, 0.5]
    assert updates.extra_metrics == {"bounded": 1}
    (rejection,) = updates.rejections
    assert rejection == (
        1,
        "TrainResponse: losses was 1e+09 and is replaced by the median 0.5.",
    )


def test_surveyed_costs_of_a_bank_are_not_changed() -> None:
    """They choose the model of the client itself, and those of honest clients may be large."""

    def client(request: SurveyRequest) -> list[tuple[int, Message | bytes]]:
        costs = np.array([0.5, 1e8 if request.client == 1 else 0.25])
        values = {COSTS: costs, SAMPLES: np.array([10.0])}
        response = SurveyResponse(request.rnd, request.client, request.stage, values)
        return [(request.client, response)]

    tables = network(client).survey(np.array([0, 1, 2]), "bank", BANK, 6)
    assert tables[COSTS].tolist() == [[0.5, 0.25], [0.5, 1e8], [0.5, 0.25]]


def test_implausible_surveyed_losses_are_replaced_by_the_median() -> None:
    values = [{LOSS: np.array([loss])} for loss in (0.5, 1e8, 0.25)]
    bounded, changed = bound_survey_values(values, PowerOfChoice(), Limits())
    assert [each[LOSS].tolist() for each in bounded] == [[0.5], [0.5], [0.25]]
    reason = "SurveyResponse: candidate_loss was 1e+08 and is replaced by the median 0.5."
    assert changed == {1: reason}
