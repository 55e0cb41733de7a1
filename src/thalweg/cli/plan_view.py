"""A plan as a tree for the terminal: one branch per part, with changes marked."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from rich.text import Text
from rich.tree import Tree

from thalweg.core.config import kind_of
from thalweg.engine.any_plan import AnyPlan, BaselinePlan, get_method
from thalweg.engine.plan import Plan
from thalweg.forecast import Auto

RECIPE_PARTS = ("memory", "forecast", "selection", "objective", "weights", "server")
# These are shown only if they differ from the default.
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


class Branch(NamedTuple):
    """One line of the tree."""

    name: str
    line: str
    changes: str  # empty: none


def plan_tree(plan: AnyPlan, default: AnyPlan | None) -> Tree:
    """A plan as a tree. `default` is the plan without overrides; differences to it are marked."""
    before = default or plan
    branches: list[Branch] = []
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
        line = describe(part, table)
        if isinstance(part, Auto):
            line += " (exact if the world has known states, else states are learned: growing)"
        branches.append(Branch(name, line, _changes(part, part_before)))
    if isinstance(plan, BaselinePlan):
        whose = "one for all clients" if plan.baseline.pooled else "one for each client"
        changes = _changes(plan.baseline, get_method(before), ("pooled", "feedback"))
        branches.append(
            Branch("training", f"{whose}, after every {plan.baseline.feedback}", changes)
        )
    if isinstance(plan, Plan) and isinstance(before, Plan):
        branches.append(Branch("local", describe(plan.local), _changes(plan.local, before.local)))
    sizes = ", ".join(f"{name} {getattr(plan.scenario, name)}" for name in SIZES)
    branches.append(Branch("sizes", sizes, _changes(plan.scenario, before.scenario, SIZES)))
    width = max(len(branch.name) for branch in branches) + 2
    tree = Tree(Text(plan.title, style="bold"))
    for name, line, changes in branches:
        text = Text.assemble((f"{name:<{width}}", "cyan"), line)
        tree.add(text.append(f"   <- {changes}", style="yellow") if changes else text)
    return tree


def _parts(plan: AnyPlan) -> list[str]:
    """The parts of a plan, in order."""
    if isinstance(plan, BaselinePlan):
        names = [*SCENARIO_PARTS, "learner", *RARE_SCENARIO_PARTS]
        return [name for name in names if name not in NOT_FOR_BASELINES]
    return [*SCENARIO_PARTS, *RECIPE_PARTS, *RARE_PARTS, *RARE_SCENARIO_PARTS]


def describe(part: Any, table: dict[str, Any] | None = None) -> str:
    """The kind of a policy and its fields that differ from the default."""
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
    """The differences between a part and the part of the recipe or the scenario."""
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
