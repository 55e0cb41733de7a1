"""Tiny runs on the reference engine and on Flower."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import Plan, make_plan
from thalweg.engine.run_folder import RunFolder

TINY = ["capacity=16", "local.passes=1", "ticks=2", "world.num_clients=5", "evaluate_every=5"]


def tiny_plan(recipe: str, scenario: str = "digits-partial", rounds: int = 10, *more: str) -> Plan:
    overrides: Sequence[str] = [*TINY, *more]
    return make_plan(
        recipe, scenario, seed=3, rounds=rounds, engine="reference", overrides=overrides
    )


def run_simulated(plan: Plan) -> Result:
    """Run the plan in this process, on the reference engine."""
    return run_plan(replace(plan, engine="reference"))


def prepare_run(folder: Path, plan: Plan, **options: object) -> Path:
    """Create a run folder as `thalweg serve` does before it starts the ServerApp.

    Rounds wait for all clients unless `share` is given, so that results do not depend on time. The
    run fails if too few clients are present for five minutes.
    """
    run = RunFolder(folder)
    run.open(plan, command="a test", resume=False)
    run.close()
    (folder / "serve.json").write_text(json.dumps({"share": 1.0, "wait_s": 300} | options))
    return folder


def write_regression(file: Path, num_outputs: int = 1) -> Path:
    """Write numbers of five clients over time; the relation changes after half of the rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    slopes = rng.normal(size=(2, 3, num_outputs))
    y = np.where(np.arange(200)[:, None] < 100, x @ slopes[0], x @ slopes[1])
    y = y[:, 0] if num_outputs == 1 else y
    np.savez(file, x=x, y=y, client=np.arange(200) % 5, time=np.arange(200.0))
    return file


def write_windows(file: Path) -> Path:
    """Write windows (12, 3) of five clients in four classes."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 12, 3)), rng.integers(4, size=120)
    np.savez(file, x=x, y=y, client=np.arange(120) % 5, time=np.arange(120.0))
    return file
