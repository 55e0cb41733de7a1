from __future__ import annotations

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from contracts.examples import train_request_for
from engine.bytes_federation import BytesFederation, load
from engine.test_every_recipe import SMALL
from thalweg.core.errors import BadMessage, RunError, ShapeMismatch
from thalweg.engine.plan import make_plan
from thalweg.federation import Hello, SurveyRequest, TrainResponse
from thalweg.network.remote_node import RemoteNode
from thalweg.network.wire import from_bytes, to_bytes


def remote(recipe: str = "fedogd") -> RemoteNode:
    plan = make_plan(recipe, "digits-partial", seed=2, overrides=SMALL)
    return BytesFederation(plan, load(plan.scenario.data, plan.seed)).nodes[3]


def order(node: RemoteNode, rnd: int, client: int = 3) -> bytes:
    params = np.zeros(node.terms.num_params, dtype=np.float32)
    return to_bytes(train_request_for(rnd, client, params), node.terms)


def test_bytes_in_bytes_out() -> None:
    node = remote()
    state, payload = node.handle(node.new_client(), order(node, rnd=4))
    reply = from_bytes(payload, node.terms, TrainResponse)
    assert (reply.rnd, reply.client, state.last_round, state.client.lived) == (4, 3, 4, 1)
    assert from_bytes(node.hello(), node.terms, Hello).client == 3


@pytest.mark.parametrize("rnd", [0, 3, 4])
def test_an_order_that_comes_twice_or_late_is_refused(rnd: int) -> None:
    node = remote("dpcs")
    state, _ = node.handle(node.new_client(), order(node, rnd=4))
    with pytest.raises(BadMessage, match=rf"round {rnd + 1} is over for client 3, .* round 5;"):
        node.handle(state, order(node, rnd))
    nothing = np.empty((0, node.terms.num_params), dtype=np.float32)
    question = to_bytes(SurveyRequest(rnd, 3, "selection", nothing), node.terms)
    with pytest.raises(BadMessage, match="is over"):
        node.handle(state, question)
    state, _ = node.handle(state, order(node, rnd=5))
    assert state.client.lived == 2


def test_a_message_for_somebody_else_is_refused() -> None:
    node = remote()
    with pytest.raises(BadMessage, match="this is client 3, but the message is for 5"):
        node.handle(node.new_client(), order(node, 0, client=5))


def test_what_is_no_errand_is_refused() -> None:
    node = remote()
    for payload in (b"", node.hello(), order(node, 0)[:-4]):
        with pytest.raises(BadMessage):
            node.handle(node.new_client(), payload)
    small = to_bytes(
        train_request_for(0, 3, np.zeros(2, "f4")), type(node.terms)(node.terms.recipe, 2)
    )
    with pytest.raises(ShapeMismatch, match=r"params has shape \(1, 2\)"):
        node.handle(node.new_client(), small)


@pytest.mark.parametrize("recipe", ["fedewc", "ode", "dpcs", "stream-ours"])
def test_a_state_comes_back_to_the_bit(recipe: str) -> None:
    node = remote(recipe)
    state, _ = node.handle(node.new_client(), order(node, rnd=0))
    restored = node.restore_state(node.serialize_state(state))
    assert to_comparable(restored) == to_comparable(state)
    assert type(restored.client) is type(state.client)


def test_a_state_that_is_damaged_or_of_another_recipe_is_one_message() -> None:
    node = remote("ode")
    stored = node.serialize_state(node.new_client())
    with pytest.raises(RunError, match="the stored state of client 3 is damaged, or of another"):
        node.restore_state(stored[:-5])
    with pytest.raises(RunError, match="the stored state of client 3 is damaged, or of another"):
        node.restore_state(order(node, 0))


def test_a_rehearsal_leaves_no_trace_and_the_round_is_not_over() -> None:
    node = remote("scaffold")
    params = np.zeros(node.terms.num_params, dtype=np.float32)
    broadcast = {"objective": {"common": params}}
    state, _ = node.handle(
        node.new_client(),
        to_bytes(train_request_for(3, 3, params, broadcast=broadcast), node.terms),
    )
    probe_round = train_request_for(
        4, 3, params, lr_scale=0.5, session=1, probe_round=2, broadcast=broadcast
    )
    after, payload = node.handle(state, to_bytes(probe_round, node.terms))
    assert to_comparable(after) == to_comparable(state)
    assert node.serialize_state(after) == node.serialize_state(state)
    reply = from_bytes(payload, node.terms, TrainResponse)
    assert (reply.probe_round, reply.num_steps[0] > 0) == (2, True)
    again, same = node.handle(after, to_bytes(probe_round, node.terms))
    assert same == payload, "it may come twice"
    state, _ = node.handle(
        again, to_bytes(train_request_for(4, 3, params, session=1, broadcast=broadcast), node.terms)
    )
    assert (state.last_round, state.client.lived, state.client.session) == (4, 2, 1)
    with pytest.raises(BadMessage, match="round 5 is over"):
        node.handle(state, to_bytes(probe_round, node.terms))
