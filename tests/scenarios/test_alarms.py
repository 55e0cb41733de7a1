from __future__ import annotations

import numpy as np

import thalweg
from thalweg.scenarios import SCENARIOS, find_scenario
from thalweg.scenarios.alarms import ALARMS, PER_ROUND, alarms_digits, alarms_fashion_mnist
from thalweg.streams import HasViews, Setting, add_drift


def test_alarm_scenarios_are_registered_under_their_names() -> None:
    for name, make in ALARMS.items():
        assert find_scenario(name) == make() == SCENARIOS[name]()
        assert make().name == name


def test_every_fashion_mnist_image_arrives_once() -> None:
    scenario = alarms_fashion_mnist()
    labels = np.arange(60_000) % 10
    setting = Setting(labels, 10, ticks=1, capacity=scenario.capacity, rounds=60, seed=0)
    world = scenario.world.build(setting)
    came = []
    for client in range(world.num_clients):
        state, _ = world.begin(client)
        for rnd in range(60):
            state, (arrival,) = world.emit(state, client, rnd)
            assert len(arrival.items) == PER_ROUND
            came.append(arrival.items)
    assert sorted(np.concatenate(came).tolist()) == list(range(60_000))


def test_half_of_the_clients_drift_in_the_middle_of_the_run() -> None:
    for scenario in (alarms_digits(), alarms_fashion_mnist()):
        setting = Setting(np.arange(2000) % 10, 10, 1, scenario.capacity, scenario.rounds, seed=3)
        world = add_drift(scenario.world.build(setting), scenario.drift, setting)
        assert isinstance(world, HasViews)
        assert {rnd for rnd, _, _ in world.drift_events()} == {30}
        assert len(world.drift_events()) == world.num_clients // 2
        assert scenario.prequential == PER_ROUND


def test_page_hinkley_detects_all_drifts_of_the_digits_scenario() -> None:
    sets = ["memory=fifo", "alarm=page-hinkley", "drift.at=12"]
    result = thalweg.run("fedavg", "alarms-digits", rounds=15, workers=1, overrides=sets)
    assert result.alarms is not None
    assert (result.alarms["drifts"], result.alarms["missed"]) == (4, 0)
    assert result.alarms["mean_delay"] <= 1
