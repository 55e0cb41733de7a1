"""`RemoteNode` executes encoded requests and stores its state."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from contracts.examples import train_request_for
from engine.bytes_federation import BytesFederation, load
from engine.recipe_runs import SMALL
from thalweg.core.errors import BadMessage, RunError, ShapeMismatch
from thalweg.core.types import Floats32
from thalweg.engine.plan import make_plan
from thalweg.federation import Hello, SurveyRequest, TrainResponse
from thalweg.network.rejections import Rejected, RejectionCode
from thalweg.network.remote_node import RemoteNode
from thalweg.network.wire import Request, from_bytes, to_bytes


def remote(recipe: str = "fedogd", *overrides: str) -> RemoteNode:
    plan = make_plan(recipe, "digits-partial", seed=2, overrides=[*SMALL, *overrides])
    return BytesFederation(plan, load(plan.scenario.data, plan.seed)).nodes[3]


def encode_request(node: RemoteNode, rnd: int, client: int = 3) -> bytes:
    params = np.zeros(node.schema.num_params, dtype=np.float32)
    return to_bytes(train_request_for(rnd, client, params), node.schema)


def test_handle_executes_an_encoded_train_request() -> None:
    node = remote()
    state, payload = node.handle(node.new_client(), encode_request(node, rnd=4))
    response = from_bytes(payload, node.schema, TrainResponse)
    assert (response.rnd, response.client, state.last_round, state.client.stream_round) == (
        4,
        3,
        4,
        1,
    )
    assert from_bytes(node.hello(), node.schema, Hello).client == 3


HIDDEN = ["losses=omit", "counts=omit", "predictions=omit"]


@pytest.mark.parametrize(("hidden", "is_sent"), [(HIDDEN, False), (HIDDEN[::2], True), ([], True)])
def test_amount_of_data_is_hidden_if_everything_else_is(hidden: list[str], is_sent: bool) -> None:
    privacy = ["privacy=gaussian", "weights=equal", *(f"privacy.{each}" for each in hidden)]
    plan = make_plan("fedavg", "digits-partial", seed=2, overrides=[*SMALL, *privacy])
    node = BytesFederation(plan, load(plan.scenario.data, plan.seed)).nodes[3]
    hello = from_bytes(node.hello(), node.schema, Hello)
    assert (hello.supply.total > 0) == is_sent
    assert hello.supply.rounds == node.node.hello().supply.rounds


@pytest.mark.parametrize("rnd", [0, 3, 4])
def test_repeated_and_late_requests_are_rejected(rnd: int) -> None:
    node = remote("dpcs")
    state, _ = node.handle(node.new_client(), encode_request(node, rnd=4))
    with pytest.raises(BadMessage, match=rf"round {rnd + 1} is over for client 3, .* round 5;"):
        node.handle(state, encode_request(node, rnd))
    nothing = np.empty((0, node.schema.num_params), dtype=np.float32)
    survey_request = to_bytes(SurveyRequest(rnd, 3, "selection", nothing), node.schema)
    with pytest.raises(BadMessage, match="is over"):
        node.handle(state, survey_request)
    state, _ = node.handle(state, encode_request(node, rnd=5))
    assert state.client.stream_round == 2


def test_request_for_a_round_in_the_far_future_is_rejected() -> None:
    """The client would first have to collect the samples of all rounds in between."""
    node = remote("fedavg", "world.absent=collecting", "ticks=2")
    assert node.node.clients.stream.collects_when_absent
    node.handle(node.new_client(), encode_request(node, 9))
    with pytest.raises(Rejected, match="samples of 50001 rounds with 2 ticks each") as found:
        node.handle(node.new_client(), encode_request(node, 50_001))
    assert found.value.code == RejectionCode.ROUND
    with pytest.raises(BadMessage, match="rnd must be an integer from 0 to 10000000"):
        encode_request(node, 10**8)


WARM_START = ["session_trigger=presence", "session_start=warm-start"]


@pytest.mark.parametrize(("overrides", "most"), [([], 0), (WARM_START, 1)])
def test_probe_rounds_are_those_of_the_session_start(overrides: list[str], most: int) -> None:
    """Each probe round discloses a loss of a model that the server chooses."""
    node = remote("fedogd", *overrides)
    params = np.zeros(node.schema.num_params, dtype=np.float32)
    request = train_request_for(0, 3, params)
    node.handle(node.new_client(), to_bytes(replace(request, probe_round=most), node.schema))
    further = to_bytes(replace(request, probe_round=most + 1), node.schema)
    with pytest.raises(BadMessage, match=rf"probe round {most + 1}, but .* runs at most {most}"):
        node.handle(node.new_client(), further)


def test_request_for_another_client_is_rejected() -> None:
    node = remote()
    with pytest.raises(BadMessage, match="this is client 3, but the request is for client 5"):
        node.handle(node.new_client(), encode_request(node, 0, client=5))


def test_payloads_that_are_not_requests_are_rejected() -> None:
    node = remote()
    for payload in (b"", node.hello(), encode_request(node, 0)[:-4]):
        with pytest.raises(BadMessage):
            node.handle(node.new_client(), payload)
    small = to_bytes(
        train_request_for(0, 3, np.zeros(2, "f4")), type(node.schema)(node.schema.recipe, 2)
    )
    with pytest.raises(ShapeMismatch, match=r"params has shape \(1, 2\)"):
        node.handle(node.new_client(), small)


@pytest.mark.parametrize("recipe", ["fedewc", "ode", "dpcs", "stream-ours"])
def test_state_is_restored_bit_by_bit(recipe: str) -> None:
    node = remote(recipe)
    state, _ = node.handle(node.new_client(), encode_request(node, rnd=0))
    restored = node.restore_state(node.serialise_state(state))
    assert to_comparable(restored) == to_comparable(state)
    assert type(restored.client) is type(state.client)


def test_damaged_or_foreign_state_is_rejected() -> None:
    node = remote("ode")
    stored = node.serialise_state(node.new_client())
    with pytest.raises(RunError, match="the stored state of client 3 is damaged, or of another"):
        node.restore_state(stored[:-5])
    with pytest.raises(RunError, match="the stored state of client 3 is damaged, or of another"):
        node.restore_state(encode_request(node, 0))


def test_probe_round_changes_no_state_and_does_not_end_the_round() -> None:
    node = remote("scaffold", *WARM_START, "session_start.probe_rounds=2")
    params = np.zeros(node.schema.num_params, dtype=np.float32)
    broadcast = {"objective": {"common": params}}
    state, _ = node.handle(
        node.new_client(),
        to_bytes(train_request_for(3, 3, params, broadcast=broadcast), node.schema),
    )
    probe_round = train_request_for(
        4, 3, params, lr_scale=0.5, session=1, probe_round=2, broadcast=broadcast
    )
    after, payload = node.handle(state, to_bytes(probe_round, node.schema))
    assert to_comparable(after) == to_comparable(state)
    assert node.serialise_state(after) == node.serialise_state(state)
    response = from_bytes(payload, node.schema, TrainResponse)
    assert (response.probe_round, response.num_steps[0] > 0) == (2, True)
    again, same = node.handle(after, to_bytes(probe_round, node.schema))
    assert same == payload, "a probe round may be repeated"
    state, _ = node.handle(
        again,
        to_bytes(train_request_for(4, 3, params, session=1, broadcast=broadcast), node.schema),
    )
    assert (state.last_round, state.client.stream_round, state.client.session) == (4, 2, 1)
    with pytest.raises(BadMessage, match="round 5 is over"):
        node.handle(state, to_bytes(probe_round, node.schema))


def vectors(**lengths: int) -> dict[str, Floats32]:
    return {name: np.ones(length, dtype=np.float32) for name, length in lengths.items()}


P = 4810  # parameters of the net


@pytest.mark.parametrize(
    ("settings", "stage", "values", "reason"),
    [
        ("scaffold", "objective", {}, "common is missing"),
        ("scaffold", "objective", {"common": 3}, "common has 3 numbers, not 4810"),
        ("fedavg objective=continuous", "objective", {"teacher": 3}, "teacher has 3 numbers"),
        ("fedavg objective=curvature", "objective", {"others_fisher": P}, "params is missing"),
        ("fedrc", "bank", {}, "learn_since is missing"),
        ("fedrc", "bank", {"learn_since": 1, "step_began": 1, "label_priors": 9}, "9 numbers"),
        ("fedavg bank=two-mixtures", "bank", {"new_mixture": 2}, "old_mixture is missing"),
        (
            "fedavg bank=two-mixtures",
            "bank",
            {"new_mixture": 2, "old_mixture": 2, "period_began": 1, "label_priors": 20},
            "the mixtures have 2 models, but 1 were sent",
        ),
    ],
)
def test_request_without_the_values_that_a_policy_needs_is_rejected_and_not_charged(
    settings: str, stage: str, values: dict[str, int], reason: str
) -> None:
    recipe, *overrides = settings.split()
    plan = make_plan(recipe, "digits-partial", seed=2, overrides=[*SMALL, *overrides])
    charged = list[Request]()
    nodes = BytesFederation(plan, load(plan.scenario.data, plan.seed)).nodes
    node = replace(nodes[3], charge=charged.append)
    params = np.zeros(node.schema.num_params, dtype=np.float32)
    broadcast = {stage: vectors(**values)} if values else {}
    request = to_bytes(train_request_for(4, 3, params, broadcast=broadcast), node.schema)
    with pytest.raises(BadMessage, match=f"broadcast of {stage}: .*{reason}"):
        node.handle(node.new_client(), request)
    assert not charged


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ("scaffold", {"objective": {"common": P}}),
        ("fedavg objective=continuous", {}),
        ("fedavg objective=curvature", {}),
        ("fedrc", {"bank": {"learn_since": 1, "step_began": 1, "label_priors": 10}}),
        ("fedavg bank=two-mixtures", {}),
    ],
)
def test_request_with_the_values_that_a_policy_needs_is_executed(
    settings: str, values: dict[str, dict[str, int]]
) -> None:
    recipe, *overrides = settings.split()
    plan = make_plan(recipe, "digits-partial", seed=2, overrides=[*SMALL, *overrides])
    node = BytesFederation(plan, load(plan.scenario.data, plan.seed)).nodes[3]
    assert node.schema.num_params == P
    broadcast = {stage: vectors(**lengths) for stage, lengths in values.items()}
    params = np.zeros(P, dtype=np.float32)
    request = to_bytes(train_request_for(4, 3, params, broadcast=broadcast), node.schema)
    state, _ = node.handle(node.new_client(), request)
    assert state.last_round == 4
