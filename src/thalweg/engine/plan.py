"""A plan: everything that decides the numbers of a run, and nothing else."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tomli_w

from thalweg.baselines import BASELINES, Baseline
from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.local import Sgd
from thalweg.recipes import Recipe, get_recipe
from thalweg.scenarios import Scenario, find_scenario

EngineName = Literal["fast", "reference"]


@dataclass(frozen=True)
class Plan:
    """A recipe on a scenario, with a seed and an engine."""

    recipe: Recipe
    scenario: Scenario
    seed: int = 0
    engine: EngineName = "fast"

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, f"seed must lie in [0, 2^63), got {self.seed}.")
        alarm = self.recipe.alarm
        require(
            alarm is None or alarm.watch != "error" or self.scenario.prequential > 0,
            f"the alarm watches how many arriving samples are predicted wrong, but {self.scenario.name} "
            "predicts none of them (prequential=0); predict some (--set prequential=32), or watch the loss "
            "(--set alarm.watch=loss).",
        )

    @property
    def local(self) -> Sgd:
        """How clients train: the recipe's way if it has one, else the scenario's."""
        return self.recipe.local or self.scenario.local

    @property
    def title(self) -> str:
        return f"{self.recipe.name} on {self.scenario.name}, seed {self.seed}"


def make_plan(
    recipe: Recipe | str,
    scenario: Scenario | str,
    *,
    seed: int = 0,
    rounds: int | None = None,
    engine: str = "auto",
    overrides: Iterable[str] = (),
) -> Plan:
    """Look names up, apply ``part.field=value`` overrides, and check the whole."""
    require(
        not isinstance(recipe, str) or recipe not in BASELINES,
        f"{recipe} is a baseline and no recipe, so there is no model to train; compare it with recipes "
        f"(thalweg.compare), or run it from the command line (thalweg run {recipe}).",
    )
    recipe = get_recipe(recipe) if isinstance(recipe, str) else recipe
    scenario = find_scenario(scenario) if isinstance(scenario, str) else scenario
    if engine not in ("auto", "fast", "reference"):
        raise UnknownName("engine", engine, ["auto", "fast", "reference"])
    for_recipe, for_scenario = split_overrides(recipe, overrides)
    recipe = with_overrides(recipe, for_recipe)
    scenario = with_overrides(scenario, for_scenario)
    if rounds is not None:
        scenario = replace(scenario, rounds=rounds)
    return Plan(recipe, scenario, seed, "reference" if engine == "reference" else "fast")


def split_overrides(
    recipe: Recipe | Baseline, overrides: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Overrides of the recipe (or baseline), then those of the scenario.

    Recipe and scenario have no part in common but `local`, which the recipe may leave open.
    """
    parts_of_recipe = {field.name for field in dataclasses.fields(recipe)} - {"name"}
    parts_of_scenario = {field.name for field in dataclasses.fields(Scenario)} - {"name"}
    if isinstance(recipe, Recipe) and recipe.local is None:
        parts_of_recipe -= {"local"}
    for_recipe: list[str] = []
    for_scenario: list[str] = []
    for assignment in overrides:
        part = assignment.partition("=")[0].strip().partition(".")[0]
        if part in parts_of_recipe:
            for_recipe.append(assignment)
        elif part in parts_of_scenario:
            for_scenario.append(assignment)
        else:
            raise UnknownName(
                f"part in --set {assignment}:", part, parts_of_recipe | parts_of_scenario
            )
    return for_recipe, for_scenario


def plan_to_toml(plan: Any) -> str:
    """A plan, of a recipe or of a baseline, as a file has it."""
    return tomli_w.dumps(to_dict(plan))


def plan_from_toml(text: str, where: str) -> Plan:
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not a TOML file: {error}.") from error
    require(
        "baseline" not in plain,
        f"{where} is the plan of a baseline, which has no recipe; expected the run of a recipe.",
    )
    return from_dict(Plan, plain)


def read_plan(path: Path) -> Plan:
    """The plan of a run folder, or of a plan.toml."""
    file = path / "plan.toml" if path.is_dir() else path
    try:
        return plan_from_toml(file.read_text(), str(file))
    except OSError as error:
        raise ConfigError(f"cannot read a plan from {file}: {error.strerror}.") from error


def plan_differences(old: Any, new: Any) -> list[str]:
    """What two plans disagree on, one line each: ``path: old -> new``."""
    before, after = _flatten(to_dict(old)), _flatten(to_dict(new))
    return [
        f"{path}: {before.get(path, 'absent')} -> {after.get(path, 'absent')}"
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]


def _flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
