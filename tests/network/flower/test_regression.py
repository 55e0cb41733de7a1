"""Regressions over Flower: the same bits as a simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from contracts.runs import check_same_bits
from network.flower.fake_grid import FakeGrid, devices_in
from network.flower.runs import prepare_run, run_simulated, tiny_plan, write_regression
from thalweg.engine.plan import Plan
from thalweg.network.edge.device_client import DeviceOptions
from thalweg.network.flower.server_app import serve_run

SESSIONS = ["sessions=alternating", "sessions.length=2"]
DROPPING = [
    "alarm=page-hinkley",
    "alarm.threshold=0.001",
    "alarm.min_values=1",
    "alarm.action=drop-outdated",
    "alarm.action.margin=0.0",
]
REGRESSIONS: list[tuple[str, list[str]]] = [
    ("fedavg", []),
    ("feddrift", []),
    ("fedavg", ["selection=balanced-cohort", "selection.participation=0.6"]),
    ("fedavg+warmstart", SESSIONS),
    ("fedavg", [*SESSIONS, "session_start=judged"]),
    ("fedavg", ["alarm=page-hinkley", "alarm.watch=error", "loss=huber"]),
    ("fedavg", ["secure_aggregation=masked", "world.availability=1"]),
    ("fedavg", ["memory=balanced", "memory.bins=3", *DROPPING]),
]


def regression_plan(folder: Path, recipe: str, more: list[str], num_outputs: int = 1) -> Plan:
    file = write_regression(folder / "numbers.npz", num_outputs)
    return tiny_plan(recipe, str(file), 6, "local.lr=0.05", *more)


@pytest.mark.parametrize("recipe, more", REGRESSIONS)
def test_regression_on_a_fake_grid_equals_the_simulated_run(
    recipe: str, more: list[str], tmp_path: Path
) -> None:
    plan = regression_plan(tmp_path, recipe, more, num_outputs=2 if recipe == "feddrift" else 1)
    folder = prepare_run(tmp_path / "run", plan, min_clients=5)
    options = DeviceOptions(f"replay:{tmp_path / 'numbers.npz'}")
    with devices_in(tmp_path, 5, options) as devices:
        served = serve_run(FakeGrid(devices), folder)
    simulated = run_simulated(plan)
    check_same_bits(simulated, served)
    assert any(np.isfinite(row.get("prequential_mae", np.nan)) for row in served.metrics)
