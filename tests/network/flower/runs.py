"""Tiny runs on the reference engine and on Flower."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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
    """Create a run folder as `thalweg serve` does before it starts the ServerApp."""
    run = RunFolder(folder)
    run.open(plan, command="a test", resume=False)
    run.close()
    (folder / "serve.json").write_text(json.dumps(options))
    return folder
