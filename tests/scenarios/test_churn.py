from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import thalweg
from thalweg.core.config import with_overrides
from thalweg.engine.loop import Result
from thalweg.local import PolynomialDecay
from thalweg.scenarios import SCENARIOS, Scenario
from thalweg.scenarios.churn import (
    CHURN,
    churn_ag_news,
    churn_digits,
    churn_fashion_mnist,
    churn_mnist,
)
from thalweg.streams import Setting, World

QUICK = ["sessions.length=2", "rounds=10", "evaluate_every=4", "evaluate_first=1"]


def world_of(scenario: Scenario, num_classes: int) -> World:
    labels = np.arange(4000) % num_classes
    return scenario.world.build(
        Setting(labels, num_classes, scenario.ticks, scenario.capacity, scenario.rounds, seed=0)
    )


def labels_of_groups(scenario: Scenario, num_classes: int) -> list[list[int]]:
    """Return the labels of the clients in the first and in the second session."""
    world, found = world_of(scenario, num_classes), []
    assert scenario.sessions is not None
    timetable = scenario.sessions.timetable(world.num_clients, scenario.rounds, 0)
    for rnd in (0, int(timetable.starts[1])):
        found.append(np.flatnonzero(world.mixes[timetable.members(rnd)].sum(0)).tolist())
    return found


def run_churn_digits(*overrides: str) -> Result:
    return thalweg.run("fedavg", "churn-digits", overrides=[*QUICK, *overrides])


def test_churn_scenarios_are_registered_under_their_names() -> None:
    for name, make in CHURN.items():
        assert SCENARIOS[name] is make
        assert make().name == name


@pytest.mark.parametrize("name", CHURN)
def test_churn_scenarios_have_six_sessions_with_full_learning_rate_decay(name: str) -> None:
    scenario = CHURN[name]()
    assert scenario.sessions is not None
    starts = scenario.sessions.timetable(40, scenario.rounds, 0).starts
    assert len(starts) == 6
    assert isinstance(scenario.local.decay, PolynomialDecay)
    assert scenario.local.decay.rounds == starts[1] == scenario.rounds / 6
    assert scenario.evaluate_first == 10


def test_churn_mnist_groups_have_five_digits_each() -> None:
    assert labels_of_groups(churn_mnist(), 10) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    shared = with_overrides(churn_mnist(), ["world.partition.overlap=0.2"])
    assert labels_of_groups(shared, 10) == [[0, 1, 2, 3, 4], [4, 5, 6, 7, 8]]


def test_churn_ag_news_groups_have_two_sections_or_share_two_of_three() -> None:
    assert labels_of_groups(churn_ag_news(), 4) == [[0, 1], [2, 3]]
    shared = with_overrides(churn_ag_news(), ["world.partition.overlap=0.8"])
    assert labels_of_groups(shared, 4) == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("make", [churn_mnist, churn_fashion_mnist])
def test_churn_image_scenarios_have_the_released_linear_net(make: Callable[[], Scenario]) -> None:
    assert make().net.build((28, 28, 1), 10).num_params == 784 * 10 + 10


def test_churn_clients_have_all_samples_from_the_start() -> None:
    world = world_of(churn_mnist(), 10)
    assert world.num_clients == 40
    for client in (0, 39):
        _, first = world.begin(client)
        assert len(first.items) == world.capacity(client) == 100


def test_churn_mnist_learning_rate_matches_the_code_of_the_paper() -> None:
    scenario = churn_mnist()
    assert scenario.local.decay is not None
    rates = [scenario.local.lr * scenario.local.decay.factor(age) for age in (0, 1, 25, 49)]
    np.testing.assert_allclose(rates, [0.001, 0.000992793, 0.000814355, 0.000611830], atol=1e-9)


def test_every_round_has_a_session_and_evaluated_rounds_a_session_accuracy() -> None:
    rows = run_churn_digits().metrics
    assert [row["session"] for row in rows] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [row["session_round"] for row in rows] == [1, 2] * 5
    evaluated = [row["round"] for row in rows if "accuracy" in row]
    assert evaluated == [1, 3, 4, 5, 7, 8, 9, 10], "each first one, every fourth, the last"
    assert all(("session_accuracy" in row) == ("accuracy" in row) for row in rows)


def test_complete_exchange_of_members_gives_only_newcomers() -> None:
    rows = [row for row in run_churn_digits().metrics if "accuracy" in row]
    assert all("stayers_accuracy" not in row for row in rows)
    assert all(("newcomers_accuracy" in row) == (row["session"] > 0) for row in rows)


def test_clients_in_consecutive_sessions_are_stayers() -> None:
    pattern = ["sessions=recurring", "sessions.pattern='A AB'", "sessions.length=2"]
    rows = run_churn_digits(*pattern).metrics
    joined = [row for row in rows if row["session"] == 1 and "accuracy" in row]
    left = [row for row in rows if row["session"] == 2 and "accuracy" in row]
    assert all({"stayers_accuracy", "newcomers_accuracy"} <= row.keys() for row in joined)
    assert all("stayers_accuracy" in row for row in left)
    assert all("newcomers_accuracy" not in row for row in left)


def test_session_accuracy_equals_accuracy_if_members_have_all_labels() -> None:
    rows = run_churn_digits("world.partition=even").metrics
    assert all(row["session_accuracy"] == row["accuracy"] for row in rows if "accuracy" in row)


def test_rounds_without_members_have_no_session() -> None:
    pauses = ["sessions=recurring", "sessions.pattern='A-'", "sessions.length=2"]
    rows = run_churn_digits(*pauses).metrics
    assert [row.get("session") for row in rows] == [0, 0, None, None, 1, 1, None, None, 2, 2]
    assert all("session_accuracy" not in row for row in rows if "session" not in row)


def test_run_without_sessions_has_no_session_metrics() -> None:
    rows = run_churn_digits("sessions=none").metrics
    assert not any("session" in row or "session_accuracy" in row for row in rows)
    assert "accuracy" in rows[0], "the run is the session, and its first round is evaluated"


def test_warm_start_records_the_past_sessions_of_each_start() -> None:
    rows = thalweg.run("warmstart", "churn-digits", overrides=QUICK).metrics
    blends = {row["session"]: row["blend"] for row in rows if "blend" in row}
    sessions = {session: blend["sessions"] for session, blend in blends.items()}
    assert sessions == {2: [1], 3: [1, 2], 4: [1, 2, 3]}
    assert all(row["session_round"] == 1 for row in rows if "blend" in row)


def test_run_summary_contains_transitions(tmp_path: Path) -> None:
    overrides = [*QUICK, "session_start.probe_rounds=2"]
    thalweg.run("warmstart", "churn-digits", overrides=overrides, out=tmp_path / "run")
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    found = summary["transitions"]
    assert [each["session"] for each in found] == [1, 2, 3, 4]
    assert [each["counted_rounds"] for each in found] == [4] * 4
    assert found[0]["transition_accuracy"] is not None


def test_session_starts_differ_from_the_third_session_after_the_pilot() -> None:
    """As in the paper: reset after the pilot, equal for one more transition, then different."""
    recipes = {
        "fedavg": ["session_start=reset", "session_start.session=1"],
        "warmstart": ["session_start.first_start=random"],
        "average-start": ["session_start.first_start=random"],
    }
    columns = [
        [
            row["loss"]
            for row in thalweg.run(name, "churn-digits", overrides=[*QUICK, *more]).metrics
        ]
        for name, more in recipes.items()
    ]
    previous, warm, average = columns
    assert previous[:6] == warm[:6] == average[:6]
    assert previous[6] != warm[6]
    assert warm[6] != average[6]


def test_churn_digits_scenario_is_small() -> None:
    scenario = churn_digits()
    assert world_of(scenario, 10).num_clients == 12
    assert scenario.rounds == 60
