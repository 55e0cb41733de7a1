"""Plans of baselines, and functions that accept both kinds of plans."""

from __future__ import annotations

from pathlib import Path

import pytest

import thalweg
from thalweg.baselines import NoChange
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.engine.plan import (
    BaselinePlan,
    Plan,
    any_plan_from_toml,
    get_method,
    make_any_plan,
    make_plan,
    plan_differences,
    plan_to_toml,
    read_any_plan,
    read_plan,
)


def test_a_plan_is_made_from_the_name_of_a_recipe_or_a_baseline() -> None:
    assert isinstance(make_any_plan("fedavg", "elec2"), Plan)
    assert isinstance(make_any_plan("fedprox+sfedpo", "elec2"), Plan)
    assert isinstance(make_any_plan("majority", "elec2"), BaselinePlan)
    with pytest.raises(UnknownName, match=r"unknown recipe 'majorty'.*'majority'"):
        make_any_plan("majorty", "elec2")


def test_overrides_change_the_baseline_or_the_scenario() -> None:
    plan = make_any_plan(
        *("majority", "elec2"),
        seed=4,
        rounds=7,
        overrides=["pooled=true", "feedback=sample", "data.num_clients=3", "learner=no-change"],
    )
    assert isinstance(plan, BaselinePlan)
    assert (plan.baseline.pooled, plan.baseline.feedback) == (True, "sample")
    assert plan.baseline.learner == NoChange()
    assert plan.scenario.data.num_clients == 3  # type: ignore[attr-defined]
    assert (plan.scenario.rounds, plan.seed) == (7, 4)
    assert plan.title == "majority on elec2, seed 4"
    with pytest.raises(UnknownName, match="unknown setting 'memory'"):
        make_any_plan("majority", "elec2", overrides=["memory.budget=1"])


@pytest.mark.parametrize("name", ["fedavg", "majority", "river-forest"])
def test_a_plan_is_read_back_from_its_file(name: str, tmp_path: Path) -> None:
    plan = make_any_plan(name, "flights", seed=2)
    (tmp_path / "plan.toml").write_text(plan_to_toml(plan))
    assert read_any_plan(tmp_path) == plan
    assert get_method(read_any_plan(tmp_path / "plan.toml")).name == name


def test_the_plan_of_a_baseline_is_not_read_as_that_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_to_toml(make_any_plan("majority", "elec2")))
    with pytest.raises(ConfigError, match=r"plan.toml is the plan of a baseline"):
        read_plan(tmp_path)


def test_a_baseline_is_not_accepted_as_a_recipe() -> None:
    with pytest.raises(ConfigError, match=r"majority is a baseline.*thalweg.compare"):
        thalweg.run("majority", "elec2")


def test_a_damaged_plan_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="here is not a TOML file"):
        any_plan_from_toml("= 1", "here")
    with pytest.raises(ConfigError, match="cannot read a plan"):
        read_any_plan(tmp_path / "nowhere.toml")


def test_the_differences_of_a_recipe_and_a_baseline_are_listed() -> None:
    changes = plan_differences(make_plan("fedavg", "elec2"), make_any_plan("majority", "elec2"))
    assert any(line.startswith("baseline.name: absent -> majority") for line in changes)


def test_a_baseline_needs_predictions_of_arrivals() -> None:
    with pytest.raises(ConfigError, match=r"makes none \(prequential=0\)"):
        make_any_plan("majority", "churn-digits")
    with pytest.raises(ConfigError, match="seed"):
        make_any_plan("majority", "elec2", seed=-1)
