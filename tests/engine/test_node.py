"""One client as a `Node`; test_every_recipe.py compares the engines for all recipes."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import to_comparable
from contracts.examples import train_request_for
from engine.bytes_federation import BytesFederation, load
from engine.recipe_runs import SMALL
from thalweg.core.rng import Draw, rng_for
from thalweg.engine.node import Node
from thalweg.engine.plan import make_plan
from thalweg.federation import SurveyRequest


def node(recipe: str = "sfedpo", *overrides: str) -> tuple[Node, np.ndarray]:
    plan = make_plan(recipe, "digits-partial", seed=2, overrides=[*SMALL, *overrides])
    data = load(plan.scenario.data, plan.seed)
    model = plan.scenario.net.build(data.input_shape, data.num_classes).init(
        rng_for(plan.seed, Draw.NET)
    )
    return BytesFederation(plan, data).nodes[3].node, model


def test_a_round_does_not_change_the_old_state_and_the_model() -> None:
    client, model = node("fedewc")
    state, before = client.new_client(), model.copy()
    unchanged = to_comparable(state)
    after, response = client.train(state, train_request_for(0, 3, model))
    assert to_comparable(state) == unchanged
    assert np.array_equal(model, before)
    assert (after.stream_round, response.rnd, response.client) == (1, 0, 3)
    assert response.num_steps.tolist() == [6], "three ticks, 24 samples in batches of 16"
    assert response.deltas.any()


def test_the_same_request_and_state_give_the_same_response() -> None:
    client, model = node("ode", "net=ham-cnn", "net.channels=[4, 4, 4]", "net.hidden=8")
    order = train_request_for(5, 3, model)
    first, second = (client.train(client.new_client(), order) for _ in range(2))
    assert to_comparable(first[0]) == to_comparable(second[0])
    assert to_comparable(vars(first[1])) == to_comparable(vars(second[1]))


def test_results_do_not_depend_on_the_memory_alignment_of_the_model() -> None:
    client, model = node("flwf-2t")
    room = np.zeros(len(model) + 8, dtype=np.float32)
    seen = set()
    for start in range(8):
        room[start : start + len(model)] = model
        order = train_request_for(0, 3, room[start : start + len(model)])
        seen.add(client.train(client.new_client(), order)[1].deltas.tobytes())
    assert len(seen) == 1


def test_half_the_learning_rate_scale_is_half_the_step() -> None:
    client, model = node("fedogd", "ticks=1", "local.momentum=0", "local.batch_size=24")
    whole, half = (
        client.train(client.new_client(), train_request_for(0, 3, model, lr_scale=lr_scale))[
            1
        ].deltas
        for lr_scale in (1.0, 0.5)
    )
    np.testing.assert_allclose(half, whole / 2, rtol=1e-3, atol=1e-7)


def test_a_survey_response_names_its_client_round_and_stage() -> None:
    client, model = node("dpcs")
    question = SurveyRequest(2, 3, "selection", np.empty((0, len(model)), dtype=np.float32))
    _, answer = client.answer_survey(client.new_client(), question)
    assert (answer.rnd, answer.client, answer.stage) == (2, 3, "selection")
    assert answer.values["label_mix"].sum() == 1


def test_hello_contains_the_supply_of_the_client() -> None:
    client, _ = node()
    hello = client.hello()
    assert hello.client == 3
    assert hello.supply == client.clients.stream.supply(3)
