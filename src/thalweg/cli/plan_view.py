"""A plan as a tree, before it runs: one branch per part, changes marked."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.text import Text
from rich.tree import Tree

from thalweg.core.config import kind_of
from thalweg.engine.any_plan import AnyPlan, BaselinePlan, get_method
from thalweg.engine.plan import Plan

RECIPE_PARTS = ("memory", "forecast", "selection", "objective", "weights", "server")
# The rare ones are shown where somebody makes use of them.
RARE_PARTS = (
    "sample_weights",
    "staleness",
    "bank",
    "session_start",
    "geometry",
    "stopping",
    "alarm",
)
SCENARIO_PARTS = ("data", "net", "world")
RARE_SCENARIO_PARTS = ("sessions", "augment", "faults")
NOT_FOR_BASELINES = ("net", "augment", "faults")
SIZES = ("rounds", "ticks", "capacity")


def plan_tree(plan: AnyPlan, default: AnyPlan | None) -> Tree:
    """`default` is the same recipe and scenario without overrides, to mark what was changed."""
    before = default or plan
    tree = Tree(Text(plan.title, style="bold"))
    for name in _parts(plan):
        owner, owner_before = (
            (plan.scenario, before.scenario)
            if name in (*SCENARIO_PARTS, *RARE_SCENARIO_PARTS)
            else (get_method(plan), get_method(before))
        )
        field = next(f for f in dataclasses.fields(owner) if f.name == name)
        table = field.metadata["table"]
        part, part_before = getattr(owner, name), getattr(owner_before, name)
        if name in (*RARE_PARTS, *RARE_SCENARIO_PARTS) and part == part_before == field.default:
            continue
        tree.add(_branch(name, describe(part, table), _changes(part, part_before)))
    if isinstance(plan, BaselinePlan):
        whose = "one for all clients" if plan.baseline.pooled else "one for each client"
        changes = _changes(plan.baseline, get_method(before), ("pooled", "feedback"))
        tree.add(_branch("learns", f"{whose}, after every {plan.baseline.feedback}", changes))
    if isinstance(plan, Plan) and isinstance(before, Plan):
        tree.add(_branch("local", describe(plan.local), _changes(plan.local, before.local)))
    sizes = ", ".join(f"{name} {getattr(plan.scenario, name)}" for name in SIZES)
    tree.add(_branch("sizes", sizes, _changes(plan.scenario, before.scenario, SIZES)))
    return tree


def _parts(plan: AnyPlan) -> list[str]:
    """The branches of a plan that are a choice, in order."""
    if isinstance(plan, BaselinePlan):
        names = [*SCENARIO_PARTS, "learner", *RARE_SCENARIO_PARTS]
        return [name for name in names if name not in NOT_FOR_BASELINES]
    return [*SCENARIO_PARTS, *RECIPE_PARTS, *RARE_PARTS, *RARE_SCENARIO_PARTS]


def describe(part: Any, table: dict[str, Any] | None = None) -> str:
    """A policy by its kind and the fields that are not at their default."""
    if part is None:
        return "none"
    changed = [
        f"{field.name}={_short(getattr(part, field.name))}"
        for field in dataclasses.fields(part)
        if getattr(part, field.name) != field.default
    ]
    kind = type(part).__name__.lower() if table is None else kind_of(part, table)
    return f"{kind}({', '.join(changed)})" if changed else kind


def _short(value: Any) -> str:
    return "(" + ", ".join(map(str, value)) + ")" if isinstance(value, tuple) else str(value)


def _changes(part: Any, before: Any, names: tuple[str, ...] | None = None) -> str:
    """What of a part is not as the recipe or the scenario has it."""
    if type(part) is not type(before):
        return f"was {'none' if before is None else type(before).__name__}"
    if part is None:
        return ""
    names = names or tuple(field.name for field in dataclasses.fields(part))
    return ", ".join(
        f"{name} was {_short(getattr(before, name))}"
        for name in names
        if getattr(part, name) != getattr(before, name)
    )


def _branch(name: str, line: str, changes: str) -> Text:
    text = Text.assemble((f"{name:<10}", "cyan"), line)
    return text.append(f"   <- {changes}", style="yellow") if changes else text
