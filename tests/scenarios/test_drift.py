from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import thalweg
from thalweg.nets import Net
from thalweg.scenarios import SCENARIOS, Scenario, find_scenario
from thalweg.scenarios.drift import (
    DRIFT,
    drift_cifar10,
    drift_cifar100,
    drift_digits,
    drift_fashion_mnist,
    drift_fashion_mnist_mlp,
    drift_fashion_mnist_released,
    drift_fashion_mnist_released_small,
    drift_fashion_mnist_small,
)
from thalweg.streams import HasViews, Setting, Steps

HALF = ["selection=uniform", "selection.fraction=0.5", "memory=fifo"]


def test_drift_scenario_has_the_settings_of_the_paper() -> None:
    scenario = drift_fashion_mnist()
    assert scenario.world == Steps()
    assert (scenario.world.num_clients, scenario.rounds, scenario.evaluate_every) == (60, 240, 40)
    assert (scenario.local.batch_size, scenario.local.momentum, scenario.local.passes) == (
        128,
        0.9,
        1,
    )
    assert (scenario.ticks, scenario.prequential) == (1, 0)


@pytest.mark.parametrize(
    "make",
    [drift_fashion_mnist_small, drift_fashion_mnist_mlp, drift_cifar10, drift_cifar100],
)
def test_reduced_scenarios_have_as_many_steps_per_round(make: Callable[[], Scenario]) -> None:
    scenario, whole = make(), drift_fashion_mnist()
    assert scenario.world == replace(Steps(), num_clients=20, shard_size=500)
    assert (scenario.rounds, scenario.evaluate_every) == (whole.rounds, whole.evaluate_every)
    steps = [
        len(each.local.batches(n, np.random.default_rng(0)))
        for each, n in ((scenario, 500), (whole, 1000))
    ]
    assert steps == [8, 8]


@pytest.mark.parametrize(
    ("make", "plain", "held"),
    [
        (drift_fashion_mnist_released, drift_fashion_mnist, 900),
        (drift_fashion_mnist_released_small, drift_fashion_mnist_small, 450),
    ],
)
def test_released_scenarios_have_the_training_of_the_released_code(
    make: Callable[[], Scenario], plain: Callable[[], Scenario], held: int
) -> None:
    scenario = make()
    assert scenario.net.build((1, 28, 28), 10).num_params == 2_171_786
    assert scenario.world == replace(plain().world, train_share=0.9)  # type: ignore[type-var]
    local = scenario.local
    assert (local.weight_decay, local.momentum) == (5e-4, 0.9)
    assert [local.keeps_between(rnd, rnd + 1) for rnd in (0, 38, 39)] == [True, True, False]
    # 900 samples in batches of 128, or 450 in batches of 64; with those of the last step the double
    for number, steps in ((held, 7), (2 * held, 14)):
        batches = local.batches(number, np.random.default_rng(0))
        assert [len(batch) for batch in batches] == [local.batch_size] * steps


def test_drift_nets_have_the_expected_number_of_parameters() -> None:
    grey: Net = drift_fashion_mnist().net.build((1, 28, 28), 10)
    colour: Net = drift_cifar10().net.build((3, 32, 32), 10)
    dense: Net = drift_fashion_mnist_mlp().net.build((1, 28, 28), 10)
    assert (grey.num_params, colour.num_params, dense.num_params) == (61_706, 62_006, 159_010)


def test_drift_scenarios_are_registered_under_their_names() -> None:
    for name, make in DRIFT.items():
        assert find_scenario(name) == make() == SCENARIOS[name]()
        assert make().name == name


def test_fashion_mnist_shards_have_1000_samples() -> None:
    setting = Setting(np.arange(60_000) % 10, 10, ticks=1, capacity=1, rounds=240, seed=0)
    world = Steps().build(setting)
    assert isinstance(world, HasViews)
    assert {len(shard) for shard in world.shards} == {1000}
    assert world.capacity(7) == 2000


def test_drift_digits_scenario_is_small() -> None:
    scenario = drift_digits()
    assert (scenario.world.num_clients, scenario.rounds) == (12, 30)  # type: ignore[attr-defined]


def test_mixed_concepts_lower_the_accuracy() -> None:
    """With one concept the model learns well; with two equal concepts at most half."""
    one = ["world.concepts=[[0]]", "world.rotations=[0]"]
    alone, mixed = (
        thalweg.run("fedavg", "drift-digits", rounds=5, workers=1, overrides=[*HALF, *more])
        for more in (one, [])
    )
    assert [row["cohort"] for row in mixed.metrics] == [6] * 5
    assert alone.final["accuracy"] > 0.7
    assert mixed.final["accuracy"] < 0.7
