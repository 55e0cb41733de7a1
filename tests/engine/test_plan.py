from dataclasses import MISSING, fields, replace

import numpy as np
import pytest

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.data import Dataset
from thalweg.engine.plan import (
    make_any_plan,
    make_plan,
    plan_differences,
    plan_from_toml,
    plan_to_toml,
    read_any_plan,
    read_plan,
)
from thalweg.memory import Dds, Fifo, UniformRatio
from thalweg.recipes import RECIPES, Recipe, fedavg
from thalweg.scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize(
    ("recipe", "scenario"),
    [
        *((recipe, "digits-partial") for recipe in RECIPES),
        *(("sfedpo", scenario) for scenario in SCENARIOS),
    ],
)
def test_every_recipe_and_every_scenario_can_be_written_to_toml(recipe, scenario):
    overrides = ["session_trigger=presence"] if recipe in ("warmstart", "average-start") else []
    plan = make_plan(recipe, scenario, seed=3, overrides=overrides)
    assert plan_from_toml(plan_to_toml(plan), "here") == plan


@pytest.mark.parametrize("session_start", ["warm-start", "average", "judged", "reset"])
def test_a_session_start_without_sessions_is_rejected(session_start):
    overrides = [f"session_start={session_start}"]
    reason = r"needs sessions, but digits-partial has none .*session_trigger='presence'"
    with pytest.raises(ConfigError, match=reason):
        make_plan("fedavg", "digits-partial", overrides=overrides)
    for remedy in ("session_trigger=presence", "sessions=alternating", "session_start=previous"):
        make_plan("fedavg", "digits-partial", overrides=[*overrides, remedy])


def test_overrides_change_the_recipe_or_the_scenario():
    plan = make_plan(
        "sfedpo",
        "digits-partial",
        overrides=["memory.budget=0.3", "world.num_clients=7", "rounds=9", "local.lr=0.5"],
    )
    assert plan.recipe.memory == Dds(budget=0.3, offset=0.35)
    assert (plan.scenario.world.num_clients, plan.scenario.rounds, plan.local.lr) == (7, 9, 0.5)


def test_a_policy_is_replaced_by_naming_its_kind():
    plan = make_plan("sfedpo", "digits-partial", overrides=["memory=uniform-ratio"])
    assert plan.recipe.memory == UniformRatio()


def test_a_recipe_can_define_local_training():
    default = make_plan("fedavg", "digits-full").local
    own = replace(default, lr=0.25)
    assert make_plan(replace(fedavg(), local=own), "digits-full").local == own


@pytest.mark.parametrize(
    ("assignment", "hint"),
    [
        ("memery.budget=1", "Did you mean 'memory'"),
        ("memory.bugdet=1", "Did you mean 'budget'"),
        ("memory=fifoo", "Did you mean 'fifo'"),
        ("memory.budget=2", "budget must lie in (0, 1], got 2"),
        ("rounds=many", "rounds=many: expected a whole number"),
        ("rounds", "expected part.field=value"),
        ("rounds=-1", "rounds must not be negative or infinite, got -1"),
        ("rounds.deep=0", "has no field 'deep'"),
    ],
)
def test_a_wrong_override_says_what_was_expected(assignment, hint):
    with pytest.raises(ConfigError) as error:
        make_plan("sfedpo", "digits-partial", overrides=[assignment])
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "scenario", "engine"),
    [
        ("sfedop", "digits-full", "auto"),
        ("sfedpo", "digit-full", "auto"),
        ("sfedpo", "digits-full", "fats"),
    ],
)
def test_unknown_names_get_a_suggestion(recipe, scenario, engine):
    with pytest.raises(UnknownName, match="Did you mean"):
        make_plan(recipe, scenario, engine=engine)


def test_plan_differences_name_the_path_and_both_values():
    old = make_plan("fedavg", "digits-full", seed=1)
    new = make_plan("fedavg", "digits-full", seed=2, overrides=["memory=fifo"])
    assert plan_differences(old, new) == [
        "recipe.memory.budget: 0.5 -> absent",
        "recipe.memory.kind: uniform-ratio -> fifo",
        "recipe.memory.stochastic_rounding: False -> absent",
        "seed: 1 -> 2",
    ]
    assert plan_differences(old, old) == []


def test_a_seed_must_not_be_negative():
    with pytest.raises(ConfigError, match="seed must lie in"):
        make_plan("fedavg", "digits-full", seed=-1)


def test_a_missing_or_damaged_plan_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="cannot read a plan"):
        read_plan(tmp_path / "nowhere.toml")
    (tmp_path / "plan.toml").write_text("= nonsense")
    with pytest.raises(ConfigError, match="not a TOML file"):
        read_plan(tmp_path)
    for text, found in (("", "an empty file"), ("seed = 1\n[scenario]\n", "seed, scenario")):
        (tmp_path / "plan.toml").write_text(text)
        for read in (read_plan, read_any_plan):
            match = rf"plan\.toml is not a plan: expected a recipe and a scenario, got {found}\."
            with pytest.raises(ConfigError, match=match):
                read(tmp_path)


def test_a_user_defined_policy_needs_no_registration(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "import numpy as np\n"
        "@dataclass(frozen=True)\n"
        "class Oldest:\n"
        "    spare: int = 0\n"
        "    def init(self, capacity, held):\n"
        "        return None\n"
        "    def keep(self, state, intake, rng):\n"
        "        room = intake.capacity - self.spare\n"
        "        return None, np.arange(min(room, intake.held + intake.num_new))\n"
    )
    kind = f"{tmp_path / 'mine.py'}:Oldest"
    plan = make_plan("fedavg", "digits-full", overrides=[f"memory={kind}", "memory.spare=2"])
    assert plan.recipe.memory.spare == 2
    assert plan_from_toml(plan_to_toml(plan), "here") == plan
    assert plan.recipe.memory != Fifo()


def test_a_policy_file_that_is_missing_or_lacks_the_class_is_rejected(tmp_path):
    (tmp_path / "empty.py").write_text("")
    for kind, said in [
        (f"{tmp_path}/none.py:X", "there is no file"),
        (f"{tmp_path}/empty.py:X", "no dataclass named 'X'"),
        ("no.such.package:X", "cannot import"),
    ]:
        with pytest.raises(ConfigError, match=said):
            make_plan("fedavg", "digits-full", overrides=[f"memory={kind}"])


def choices_of(part, name="", outer=()):
    """All that can be typed for the stages of a part, and for choices inside what was chosen.

    A policy inside itself, such as a warm-up after a warm-up, is left out.
    """
    for field in fields(part):
        for kind, policy in field.metadata.get("table", {}).items():
            if policy in outer:
                continue
            here = f"{name}{field.name}"
            yield [f"{here}={kind}"], policy
            for inner, chosen in choices_of(policy, f"{here}.", (*outer, policy)):
                yield [f"{here}={kind}", *inner], chosen


@pytest.mark.parametrize("recipe", ["fedavg", "stream-ours+dpcs+flash"])
@pytest.mark.parametrize("owner", [Recipe, Scenario])
def test_every_kind_of_every_stage_can_be_set_and_written_to_toml(recipe, owner):
    typed = 0
    for overrides, policy in choices_of(owner):
        if any(f.default is f.default_factory is MISSING for f in fields(policy)):
            with pytest.raises(ConfigError, match=r"needs (path|name)"):  # of the user's own data
                make_plan(recipe, "digits-partial", overrides=overrides)
            continue
        if any(each.startswith("session_start=") for each in overrides):
            overrides = [*overrides, "session_trigger=presence"]  # else there are no sessions
        plan = make_plan(recipe, "digits-partial", overrides=overrides)
        assert plan_from_toml(plan_to_toml(plan), "here") == plan
        typed += 1
    assert typed >= 30


@pytest.mark.parametrize(
    ("recipe", "scenario", "text"),
    [
        (
            "fedavg",
            "digits-full",
            "<Plan: fedavg on digits-full, seed 3; classification, 2 rounds; engine fast>",
        ),
        (
            "running-mean",
            "flights-minutes",
            "<BaselinePlan: running-mean on flights-minutes, seed 3; regression, 2 rounds>",
        ),
    ],
)
def test_the_text_of_a_plan_is_one_line_with_the_task(recipe, scenario, text):
    assert repr(make_any_plan(recipe, scenario, seed=3, rounds=2)) == text


def test_the_text_of_a_plan_has_the_task_of_data_from_python():
    x = np.zeros((8, 2))
    for y, task in (([0, 1] * 4, "classification"), (np.arange(8) / 3, "regression")):
        plan = make_any_plan("fedavg", Dataset.from_arrays(x, y, client=[0, 1] * 4), rounds=2)
        assert f"; {task}, 2 rounds; " in repr(plan)


@pytest.mark.parametrize(
    "alarm, remedy",
    [
        ("page-hinkley", r"use the loss \(alarm=\{'watch': 'loss'\}\)"),
        ("excess-errors", r"use the loss \(with alarm='page-hinkley' and alarm="),
    ],
)
def test_an_alarm_without_predictions_of_arriving_samples_is_rejected(
    alarm: str, remedy: str
) -> None:
    overrides = ["prequential=0", f"alarm={alarm}"]
    with pytest.raises(ConfigError, match=r"makes none \(prequential=0\).*" + remedy):
        make_plan("fedavg", "digits-full", overrides=overrides)


def test_settings_behind_commas_are_rejected_with_the_options_to_use() -> None:
    with pytest.raises(ConfigError, match=r"Use fedavg --set local.lr=0.2, or overrides="):
        make_plan("fedavg,local.lr=0.2", "digits-full")
    with pytest.raises(ConfigError, match="unknown recipe 'fedavg,fedprox'"):
        make_plan("fedavg,fedprox", "digits-full")
