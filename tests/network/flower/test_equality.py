"""Runs on Flower give the same bits as simulated runs, for recipes that use different stages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contracts.runs import check_same_bits
from engine.recipe_runs import active_auto_plan
from network.flower.fake_grid import FakeGrid, devices_in
from network.flower.runs import prepare_run, run_simulated, tiny_plan
from thalweg.engine.plan import Plan
from thalweg.engine.run_folder import RunFolder
from thalweg.network.flower.server_app import serve_run

SESSIONS = ["sessions=alternating", "sessions.length=2", "world.availability=1"]
PRESENCE = [
    "session_trigger=presence",
    "session_trigger.tolerance=0.3",
    "session_trigger.risk=0.2",
]
DRIFT = ["drift=recurring", "drift.period=2", "drift.views=[{}, {labels = 3}]"]

RESTARTS = [
    *("server=averaged", "server.power=3", "server.models=after", "world.availability=0.9"),
    *("alarm=page-hinkley", "alarm.threshold=0.01", "alarm.min_values=1", "alarm.slack=0"),
    *("alarm.action=drop-outdated", "alarm.action.margin=0"),
]

RECIPES: list[tuple[str, list[str]]] = [
    ("sfedpo", []),
    ("fedprox", []),
    ("dpcs", []),
    (
        "dpcs",
        ["selection.participation=0.6", "selection.goal=pooled_counts", "selection.counter=decay"],
    ),
    ("powd", ["selection.participation=0.6"]),
    ("fedavg", ["selection=balanced-cohort", "selection.participation=0.6"]),
    (
        "fedavg",
        [
            *("selection=balanced-cohort", "selection.participation=0.4", "selection.patience=1"),
            *("selection.counter=window", "selection.counter.size=20"),
        ],
    ),
    ("feddaa", []),
    (
        "fedavg",
        [
            *("bank=two-mixtures", "bank.every=2", "bank.max_conflict=0.0"),
            *("bank.sufficient_loss=0.0", "bank.significance=1.0"),
        ],
    ),
    ("fedavg+warmstart", SESSIONS),
    ("fedavg", [*SESSIONS, "session_start=judged", *PRESENCE]),
    ("feddrift", DRIFT),
    ("fedavg", ["secure_aggregation=masked", "world.availability=0.9"]),
    ("fedavg", ["memory=balanced", "weights=label-balanced", *RESTARTS]),
    ("dpcs", ["weights=label-balanced", "weights.source=survey", "weights.target=pooled"]),
    (
        "sfedpo",
        [
            *("memory=dds-stationary", "world.dynamics=regimes"),
            *("forecast=bayesian", "forecast.forgetting=true"),
        ],
    ),
    (
        "fedavg",
        [
            *("weights=by-arrivals", "alarm=excess-errors", "alarm.threshold=1"),
            *("alarm.slack=0", "alarm.action=drop-outdated", "alarm.action.margin=0"),
        ],
    ),
]


@pytest.mark.parametrize("recipe, more", RECIPES)
def test_run_on_a_fake_grid_equals_the_simulated_run(
    recipe: str, more: list[str], tmp_path: Path
) -> None:
    plan = tiny_plan(recipe, "digits-partial", 10, *more)
    folder = prepare_run(tmp_path / "run", plan, min_clients=5)
    with devices_in(tmp_path, 5) as devices:
        served = serve_run(FakeGrid(devices), folder)
    check_same_bits(run_simulated(plan), served)
    assert RunFolder(tmp_path / "run").is_finished(10)


def test_auto_on_a_fake_grid_takes_the_decisions_of_the_simulated_run(tmp_path: Path) -> None:
    plan = active_auto_plan("serving=none")
    folder = prepare_run(tmp_path / "run", plan, min_clients=5)
    with devices_in(tmp_path, 5) as devices:
        served = serve_run(FakeGrid(devices), folder)
    check_same_bits(run_simulated(plan), served)


SERVING = ["serving=best-recent"]


@pytest.mark.parametrize(
    "plan",
    [
        tiny_plan("fedavg", "digits-partial", 10, *SERVING),
        tiny_plan("fedavg", "digits-partial", 10, *SERVING, "server=averaged"),
        tiny_plan(
            *("fedavg", "digits-partial", 10, *SERVING),
            *("serving.trained=false", "serving.last_label=false"),
        ),
        active_auto_plan(),
    ],
    ids=["latest", "averaged", "adjusted", "auto"],
)
def test_devices_serve_the_predictions_of_simulated_clients(plan: Plan, tmp_path: Path) -> None:
    """Test scores differ: the server does not know the weights of the devices."""
    folder = prepare_run(tmp_path / "run", plan, min_clients=5)
    with devices_in(tmp_path, 5) as devices:
        served = serve_run(FakeGrid(devices), folder)
    simulated = run_simulated(plan)
    assert np.array_equal(simulated.model, served.model)
    for ours, theirs in zip(served.metrics, simulated.metrics, strict=True):
        for name in ("prequential_accuracy", "tested", "loss", "bytes_up", "bytes_down"):
            assert ours.get(name) == theirs.get(name)
        assert ours.get("decisions") == theirs.get("decisions")
        assert ours.get("alarms") == theirs.get("alarms")
        assert "serving_weights" not in ours
