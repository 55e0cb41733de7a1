"""Plans of recipes or of baselines."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from thalweg.baselines import BASELINES, Baseline
from thalweg.core.config import from_dict
from thalweg.core.errors import ConfigError, UnknownName, require
from thalweg.engine.plan import Plan, apply_settings, make_plan, plan_from_toml
from thalweg.recipes import RECIPES, Recipe
from thalweg.scenarios import Scenario, find_scenario


@dataclass(frozen=True)
class BaselinePlan:
    """A baseline on a scenario, with a seed."""

    baseline: Baseline
    scenario: Scenario
    seed: int = 0

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, f"seed must lie in [0, 2^63), got {self.seed}.")
        require(
            self.scenario.prequential > 0,
            f"a baseline needs predictions of arriving samples, but {self.scenario.name} makes "
            "none (prequential=0); predict some (--set prequential=32).",
        )

    @property
    def title(self) -> str:
        return f"{self.baseline.name} on {self.scenario.name}, seed {self.seed}"


AnyPlan = Plan | BaselinePlan


def make_any_plan(
    method: Recipe | Baseline | str,
    scenario: Scenario | str,
    *,
    seed: int = 0,
    rounds: int | None = None,
    engine: str = "auto",
    overrides: Iterable[str] = (),
    **settings: Any,
) -> AnyPlan:
    """Return the plan of the recipe or the baseline that has the name.

    >>> make_any_plan("majority", "elec2", overrides=["pooled=true", "rounds=5"]).title
    'majority on elec2, seed 0'
    """
    if isinstance(method, str) and method in BASELINES:
        method = BASELINES[method]()
    if isinstance(method, str) and "+" not in method and method not in RECIPES:
        raise UnknownName("recipe or baseline", method, [*RECIPES, *BASELINES])
    if not isinstance(method, Baseline):
        return make_plan(
            method,
            scenario,
            seed=seed,
            rounds=rounds,
            engine=engine,
            overrides=overrides,
            **settings,
        )
    scenario = find_scenario(scenario) if isinstance(scenario, str) else scenario
    method, scenario = apply_settings(method, scenario, overrides, settings)
    scenario = scenario if rounds is None else replace(scenario, rounds=rounds)
    return BaselinePlan(method, scenario, seed)


def get_method(plan: AnyPlan) -> Recipe | Baseline:
    """Return the recipe or the baseline of a plan."""
    return plan.baseline if isinstance(plan, BaselinePlan) else plan.recipe


def any_plan_from_toml(text: str, where: str) -> AnyPlan:
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not a TOML file: {error}.") from error
    return from_dict(BaselinePlan, plain) if "baseline" in plain else plan_from_toml(text, where)


def read_any_plan(path: Path) -> AnyPlan:
    """Read the plan of a run folder, or a plan.toml."""
    file = path / "plan.toml" if path.is_dir() else path
    try:
        return any_plan_from_toml(file.read_text(), str(file))
    except OSError as error:
        raise ConfigError(f"cannot read a plan from {file}: {error.strerror}.") from error
