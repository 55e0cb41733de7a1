from __future__ import annotations

from pathlib import Path

import pytest

import thalweg
from thalweg.baselines import NoChange
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.engine.any_plan import (
    BaselinePlan,
    any_plan_from_toml,
    get_method,
    make_any_plan,
    read_any_plan,
)
from thalweg.engine.plan import Plan, make_plan, plan_differences, plan_to_toml, read_plan


def test_a_name_is_that_of_a_recipe_or_of_a_baseline() -> None:
    assert isinstance(make_any_plan("fedavg", "elec2"), Plan)
    assert isinstance(make_any_plan("fedprox+sfedpo", "elec2"), Plan)
    assert isinstance(make_any_plan("majority", "elec2"), BaselinePlan)
    with pytest.raises(UnknownName, match=r"unknown recipe or baseline 'majorty'.*'majority'"):
        make_any_plan("majorty", "elec2")


def test_changes_go_to_the_baseline_or_to_the_scenario() -> None:
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
def test_a_plan_comes_back_from_its_file(name: str, tmp_path: Path) -> None:
    plan = make_any_plan(name, "flights", seed=2)
    (tmp_path / "plan.toml").write_text(plan_to_toml(plan))
    assert read_any_plan(tmp_path) == plan
    assert get_method(read_any_plan(tmp_path / "plan.toml")).name == name


def test_who_needs_a_recipe_refuses_the_plan_of_a_baseline(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan_to_toml(make_any_plan("majority", "elec2")))
    with pytest.raises(ConfigError, match=r"plan.toml is the plan of a baseline"):
        read_plan(tmp_path)


def test_who_wants_a_model_is_told_that_a_baseline_has_none() -> None:
    with pytest.raises(ConfigError, match=r"majority is a baseline.*thalweg.compare"):
        thalweg.run("majority", "elec2")


def test_what_is_no_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="here is not a TOML file"):
        any_plan_from_toml("= 1", "here")
    with pytest.raises(ConfigError, match="cannot read a plan"):
        read_any_plan(tmp_path / "nowhere.toml")


def test_a_recipe_and_a_baseline_differ_in_what_they_are() -> None:
    changes = plan_differences(make_plan("fedavg", "elec2"), make_any_plan("majority", "elec2"))
    assert any(line.startswith("baseline.name: absent -> majority") for line in changes)


def test_a_scenario_that_tests_on_nothing_that_arrives_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"makes none \(prequential=0\)"):
        make_any_plan("majority", "churn-digits")
    with pytest.raises(ConfigError, match="seed"):
        make_any_plan("majority", "elec2", seed=-1)
