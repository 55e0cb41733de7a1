from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import thalweg
from thalweg.core.config import with_overrides
from thalweg.data import SyntheticLogistic
from thalweg.scenarios import SCENARIOS, Scenario
from thalweg.scenarios.inflows import (
    INFLOWS,
    dpcs_mnist,
    streams_cifar10,
    streams_cifar100,
    streams_shakespeare,
    streams_synthetic,
    streams_writers,
)
from thalweg.streams import Setting, World

CIFAR_LABELS = np.arange(50_000) % 10


def world_of(
    scenario: Scenario,
    labels: np.ndarray,
    group: np.ndarray | None = None,
    coarse: np.ndarray | None = None,
) -> World:
    setting = Setting(
        labels,
        int(labels.max()) + 1,
        scenario.ticks,
        scenario.capacity,
        scenario.rounds,
        0,
        client=group,
        coarse=coarse,
    )
    return scenario.world.build(setting)


def totals(world: World, historical: bool) -> list[float]:
    supplies = [world.supply(client) for client in range(world.num_clients)]
    return [supply.total for supply in supplies if supply.is_historical == historical]


def test_inflow_scenarios_are_registered_under_their_names() -> None:
    for name, make in INFLOWS.items():
        assert SCENARIOS[name] is make
        assert make().name == name


@pytest.mark.parametrize(
    ("share", "each", "fresh"), [(0.05, 1, 190), (0.2, 4, 160), (0.5, 10, 100)]
)
def test_synthetic_stream_has_200_samples_in_the_given_shares(
    share: float, each: float, fresh: float
) -> None:
    scenario = with_overrides(streams_synthetic(), [f"world.historical_data={share}"])
    assert isinstance(scenario.data, SyntheticLogistic)
    data = scenario.data.load(None, 0)
    world = world_of(scenario, data.y, data.client)
    assert totals(world, historical=True) == [each] * 10
    assert totals(world, historical=False) == [pytest.approx(fresh)]


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_half_of_the_cifar10_clients_are_historical_with_the_given_share(share: float) -> None:
    scenario = with_overrides(streams_cifar10(), [f"world.historical_data={share}"])
    world = world_of(scenario, CIFAR_LABELS)
    assert world.num_clients == 50
    old, new = totals(world, historical=True), totals(world, historical=False)
    assert (len(old), len(new)) == (25, 25)
    assert sum(old) == 50_000 * share
    assert sum(new) == pytest.approx(50_000 * (1 - share))
    for client in (0, 49):
        supply = world.supply(client)
        held = supply.total if supply.is_historical else np.ceil(supply.total / scenario.rounds)
        assert world.capacity(client) == max(held, 1)


def test_cifar100_clients_prefer_some_coarse_classes() -> None:
    labels = np.arange(50_000) % 100
    coarse = labels // 5
    world = world_of(streams_cifar100(), labels, coarse=coarse)
    old, new = totals(world, historical=True), totals(world, historical=False)
    assert old == [400] * 25
    assert new == [pytest.approx(1600)] * 25
    families = world.mixes.reshape(50, 20, 5).sum(axis=2)  # (N, families)
    assert np.median(families.max(axis=1)) > 0.15, "a twentieth would be all alike"


@pytest.mark.parametrize(("make", "stay"), [(streams_writers, 1), (streams_shakespeare, 2)])
def test_natural_fresh_clients_are_one_shot_and_historical_clients_stay(
    make: Callable[[], Scenario], stay: int
) -> None:
    group = np.arange(3000) % 300
    scenario = make()
    world = world_of(scenario, np.arange(3000) % 7, group)
    times_present = np.zeros(300)
    for rnd in range(scenario.rounds):
        times_present[world.present(rnd)] += 1
    assert (times_present == scenario.rounds).sum() == 60
    assert (times_present == stay).sum() == 240
    assert world.has_clients_of_data
    assert {world.supply(client).total for client in range(300)} == {10.0}
    assert {world.capacity(client) for client in range(300)} == {10, 10 // stay}
    each = [len(world.present(rnd)) - 60 for rnd in range(scenario.rounds)]
    assert max(each) <= 3 * stay, "240 clients over 100 rounds"


def test_writers_net_has_the_number_of_parameters_of_the_paper() -> None:
    assert streams_writers().net.build((1, 28, 28), 62).num_params == 867_390


def test_dpcs_world_keeps_22313_samples_of_balanced_cifar10() -> None:
    world = world_of(dpcs_mnist(), CIFAR_LABELS)
    assert world.num_clients == 20
    # 5000 + 4000 + 3200 + 2560 + 2048 + 1638 + 1310 + 1048 + 838 + 671
    assert sum(totals(world, historical=False)) == pytest.approx(22_313)
    assert world.collects_when_absent
    assert all(world.capacity(n) >= world.supply(n).total for n in range(20))


@pytest.mark.parametrize("recipe", ["fedavg", "sfedpo", "feddrift"])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("world.arrivals=one-shot", "world.availability=0.7"),
        ("world.arrivals=bursts", "world.arrivals.size=50", "world.capacity_of=scenario"),
        ("world.partition=dirichlet", "world.partition.concentration=0.01", "ticks=3"),
    ],
    ids=str,
)
def test_both_engines_agree_on_unequal_and_empty_clients(
    recipe: str, overrides: tuple[str, ...]
) -> None:
    one, other = (
        thalweg.run(
            recipe,
            "streams-synthetic",
            rounds=4,
            overrides=["data.num_test=22", "capacity=6", *overrides],
            engine=engine,
            workers=1,
        )
        for engine in ("reference", "fast")
    )
    assert [row["cohort"] for row in one.metrics] == [row["cohort"] for row in other.metrics]
    assert np.abs(one.model - other.model).max() < 1e-5
