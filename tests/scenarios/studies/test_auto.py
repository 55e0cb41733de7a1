"""The study auto-table: every cell is a valid plan, or its reason is stated."""

from pathlib import Path

import pytest

from thalweg.core.errors import ConfigError
from thalweg.engine.plan import Plan, make_any_plan
from thalweg.report.comparison import recipe_parts
from thalweg.scenarios.studies import STUDIES, replace_data, restrict_study
from thalweg.scenarios.studies.auto import (
    ABLATIONS,
    AUTO,
    BY_ALARM,
    NAME,
    ROWS,
    SPECIALISTS,
    WORLDS,
    Benchmark,
    make_columns,
    make_recipe,
    name_ablation,
)

STUDY = STUDIES[NAME]
PAGE = Path(__file__).parents[3] / "docs/results/auto.md"
WHOLE_FEDERATION = ("local-only", "centralised")


def make_plan(row: str, world: Benchmark) -> Plan:
    name, *changes = recipe_parts(make_recipe(row, world))
    plan = make_any_plan(name, world.scenario, overrides=[*changes, *world.overrides])
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.label)
def test_every_row_is_a_valid_plan_or_states_why_not(world):
    column = make_columns(world)["accuracy"]
    rows = STUDY.rows_of(next(each for each in STUDY.columns if each == column))
    assert {row.label for row in rows} == set(ROWS) - set(world.left_out)
    for row in rows:
        plan = make_plan(row.label, world)
        assert STUDY.recipe_of(row, column) == make_recipe(row.label, world)
        assert plan.scenario.name == world.scenario
    assert all(reason.strip() for reason in world.left_out.values())


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.label)
def test_all_methods_train_the_same_share_of_the_clients(world):
    shares = set()
    for row in set(ROWS) - set(world.left_out) - set(WHOLE_FEDERATION):
        rule = make_plan(row, world).recipe.selection
        shares.add(getattr(rule, "participation", getattr(rule, "fraction", 1.0)))
    assert shares == {world.share or 1.0}


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.label)
def test_scenario_does_not_depend_on_the_row(world):
    """Except for the predictions that auto needs and the memory of the pooled learner."""
    scenario = make_plan("fedavg", world).scenario
    for row in set(ROWS) - set(world.left_out) - {"centralised"}:
        other = make_plan(row, world).scenario
        assert other.world == scenario.world
        assert (other.net, other.rounds, other.capacity) == (
            scenario.net,
            scenario.rounds,
            scenario.capacity,
        )


def test_methods_are_left_out_where_they_cannot_work():
    for world in WORLDS:
        has_sessions = make_plan("fedavg", world).scenario.sessions is not None
        assert ("warmstart" in world.left_out) == (not has_sessions)
        assert ("feddrift" in world.left_out) == (not world.has_concept_drift)


@pytest.mark.parametrize("part", ABLATIONS)
def test_auto_without_a_part_differs_in_this_part(part):
    stage = part.replace(" ", "_")
    for world in WORLDS:
        whole, other = (make_plan(row, world).recipe for row in (AUTO, name_ablation(part)))
        assert getattr(whole, stage) != getattr(other, stage)
        changed = {name for name in vars(whole) if getattr(whole, name) != getattr(other, name)}
        # The weights and the alarm of auto need several models.
        assert changed - ({"weights", "alarm"} if part == "bank" else set()) == {stage}


def test_seeds_are_not_those_by_which_constants_are_chosen():
    assert not set(STUDY.seeds) & {0, 1, 2}
    assert len(STUDY.seeds) >= 5


def test_feddaa_gets_the_steps_where_they_are_known():
    with_steps = [
        world for world in WORLDS if BY_ALARM in world.left_out and world.has_concept_drift
    ]
    assert [world.scenario for world in with_steps] == ["drift-digits", "drift-fashion-mnist-mlp"]
    for world in with_steps:
        plan = make_plan("feddaa", world)
        assert plan.recipe.bank.every == plan.scenario.world.rounds_per_step
        assert plan.scenario.rounds == 6 * plan.recipe.bank.every


def test_parts_of_the_table_can_be_chosen():
    part = restrict_study(STUDY, ["auto", "fedavg", "digits-full", "accuracy"])
    assert part.row_labels == ["fedavg", "auto"]
    assert "digits-full core-seconds" in part.column_labels
    part = restrict_study(STUDY, ["auto without", "streams-synthetic 5%"])
    assert part.row_labels == [name_ablation(name) for name in ABLATIONS]
    assert part.column_labels[0] == "streams-synthetic 5% accuracy"
    assert all(label.startswith("streams-synthetic 5%") for label in part.column_labels)


def test_other_data_are_rejected():
    with pytest.raises(ConfigError, match="its recipes depend on them"):
        replace_data(STUDY, "mnist")


def test_page_lists_all_worlds_and_rows():
    text = PAGE.read_text()
    assert [line.split(" |")[0] for line in text.splitlines() if line.startswith("#### ")] == [
        f"#### {world.label}" for world in WORLDS
    ]
    for world in WORLDS:
        share = {None: "all", 0.1: "a tenth", 0.3: "30 %", 0.5: "50 %"}[world.share]
        suffices = "no" if world.has_concept_drift else "yes"
        (line,) = (
            each
            for each in text.splitlines()
            if each.startswith(f"| {world.label} | ") and each.endswith(("| yes |", "| no |"))
        )
        assert f"| {share}" in line
        assert line.endswith(f"| {suffices} |")
    for row in (*SPECIALISTS, *ROWS):
        assert row in text
