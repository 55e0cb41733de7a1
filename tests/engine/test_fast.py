"""The fast engine gives the same results as the reference engine."""

import itertools

import numpy as np
import pytest

import thalweg
from contracts.slow_cases import mark_slow_except
from thalweg.core.noise import SimulatedNoise
from thalweg.core.types import Job
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.fast import FastFederation, stack
from thalweg.engine.plan import make_plan
from thalweg.engine.workers import make_trainer
from thalweg.federation import ClientProgram, MiniBatch
from thalweg.streams import Setting

SMALL = ["capacity=24", "local.passes=1"]
ONE_STEP = ["capacity=24", "local.passes=none", "local.steps=1"]
WORLDS = {
    "latent states": ("digits-partial", SMALL),
    "one step per tick": ("digits-full", ONE_STEP),
    "replayed, ragged memories": ("gaussian-mixture", ["world.availability=1.0"]),
    "a convolutional net": (
        "digits-full",
        [*ONE_STEP, "net=cnn", "net.channels=[4, 4, 4]", "net.hidden=8", "world.num_clients=9"],
    ),
    "collecting when absent": ("digits-partial", [*SMALL, "world.absent=collecting"]),
    "sticky states": ("digits-partial", [*SMALL, "world.stickiness=0.7"]),
}


@pytest.mark.parametrize("world", WORLDS)
def test_the_fast_engine_agrees_with_the_reference_in_every_world(world):
    scenario, overrides = WORLDS[world]
    fast, slow = (
        thalweg.run("sfedpo", scenario, seed=2, rounds=3, engine=engine, overrides=overrides)
        for engine in ("fast", "reference")
    )
    np.testing.assert_allclose(fast.model, slow.model, rtol=2e-3, atol=2e-5)
    for ours, theirs in zip(fast.metrics, slow.metrics, strict=True):
        assert ours["cohort"] == theirs["cohort"]
        assert ours.get("loss", 0) == pytest.approx(theirs.get("loss", 0), rel=1e-3)
        assert ours.get("prequential_accuracy", 0) == pytest.approx(
            theirs.get("prequential_accuracy", 0), abs=0.02
        )


@pytest.mark.parametrize(
    "scenario", mark_slow_except(["digits-partial", "gaussian-mixture"], "digits-partial")
)
def test_the_number_of_workers_changes_no_bit(scenario):
    one, two = (
        thalweg.run("sfedpo", scenario, seed=4, rounds=2, workers=workers).model
        for workers in (1, 2)
    )
    assert np.array_equal(one, two)


def test_the_order_of_the_clients_changes_no_bit():
    plan = make_plan("sfedpo", "digits-partial", seed=4)
    data = plan.scenario.data.load(None, 4)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    world = plan.scenario.world.build(
        Setting(data.y, data.num_classes, ticks=5, capacity=48, rounds=9, seed=4)
    )
    model = net.init(np.random.default_rng(0))[None]
    seen = []
    for order in itertools.permutations([3, 7, 11]):
        program = ClientProgram(plan.recipe, world, data.y, plan.local, 4, noise=SimulatedNoise())
        client_pool = ClientPool(program, world)
        trainer = make_trainer(net, plan.recipe.objective, plan.local, data, 1)
        federation = FastFederation(client_pool, data.y, net, trainer, 16)
        updates = federation.train([Job(client) for client in order], model, 0)
        assert updates.clients.tolist() == [3, 7, 11]
        seen.append((updates.deltas.tobytes(), updates.reports["shift_score"].tobytes()))
        federation.close()
    assert len(set(seen)) == 1


def test_shorter_rounds_are_padded_with_weight_zero():
    one = [MiniBatch(np.array([1, 2], dtype=np.int32)), MiniBatch(np.array([3], dtype=np.int32))]
    two = [MiniBatch(np.array([4, 5, 6], dtype=np.int32))]
    task = stack(np.array([0, 0]), [one, two])
    assert task.items.shape == (2, 2, 3)
    assert task.live.tolist() == [[True, True], [True, False]]
    assert task.weights[:, 0].tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    assert task.weights[0, 1].tolist() == pytest.approx([1 / 3] * 3)
    assert task.weights[1, 1].sum() == 0
    assert task.items[0, 1].tolist() == [4, 5, 6]
