"""`thalweg.compare`: keyword settings change all recipes or the scenario."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import thalweg
from thalweg.core.errors import ConfigError
from thalweg.engine.plan import Plan, make_plan
from thalweg.memory import Reservoir
from thalweg.report.comparison import comparison_jobs

SMALL: dict[str, Any] = {"capacity": 16, "ticks": 2, "world": {"num_clients": 4}}


def make_plans(*recipes: str, overrides: list[str] | None = None, **settings: Any) -> list[Plan]:
    jobs = comparison_jobs(
        recipes,
        "digits-partial",
        seeds=1,
        rounds=2,
        overrides=overrides or [],
        engine="auto",
        folder=Path("nowhere"),
        settings=settings,
    )
    plans = [job.plan for job in jobs]
    assert all(isinstance(plan, Plan) for plan in plans)
    return plans  # type: ignore[return-value]


def test_settings_change_each_recipe_and_the_scenario() -> None:
    plans = make_plans("sfedpo", "fedavg", memory=Reservoir(), **SMALL)
    for plan, name in zip(plans, ("sfedpo", "fedavg"), strict=True):
        expected = make_plan(name, "digits-partial", rounds=2, memory=Reservoir(), **SMALL)
        assert plan == expected
        assert plan.recipe.memory == Reservoir()
        assert (plan.scenario.capacity, plan.scenario.world.num_clients) == (16, 4)


def test_changes_of_one_recipe_and_overrides_take_precedence_over_settings() -> None:
    changed, other = make_plans(
        "fedavg,memory=fifo", "fedavg", overrides=["capacity=20"], memory="reservoir", **SMALL
    )
    assert type(changed.recipe.memory).__name__ == "Fifo"
    assert type(other.recipe.memory).__name__ == "Reservoir"
    assert (changed.scenario.capacity, other.scenario.capacity) == (20, 20)


def test_compare_runs_with_its_settings() -> None:
    comparison = thalweg.compare(
        ["fedavg", "fedprox"], "digits-partial", seeds=[5], rounds=2, workers=1, **SMALL
    )
    assert [(cell.recipe, cell.seed, cell.status) for cell in comparison.cells] == [
        ("fedavg", 5, "done"),
        ("fedprox", 5, "done"),
    ]
    alone = thalweg.run("fedavg", "digits-partial", seed=5, rounds=2, workers=1, **SMALL)
    rows = comparison.cells[0].rows
    assert [row["test_loss"] for row in rows if "test_loss" in row] == [
        row["test_loss"] for row in alone.metrics if "test_loss" in row
    ]
    assert max(row["cohort"] for row in rows) <= 4


def test_unknown_setting_is_rejected_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'capcity'.*'capacity'"):
        thalweg.compare(["fedavg"], "digits-partial", capcity=16)


def test_functions_that_other_processes_cannot_load_are_rejected_before_the_runs() -> None:
    with pytest.raises(ConfigError, match=r"metrics=.*<lambda>: the runs .* a lambda"):
        thalweg.compare(["fedavg"], "digits-partial", seeds=1, metrics=lambda y, predicted: 0.0)
    with pytest.raises(ConfigError, match=r"loss=.*<lambda>: the runs"):
        thalweg.compare(["fedavg"], "digits-partial", seeds=1, loss=lambda outputs, y: outputs)
