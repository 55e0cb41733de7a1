"""A plan as a tree for the terminal: one branch per part, with changes marked."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from thalweg.aggregation.secure_aggregation import NOT_REVIEWED
from thalweg.cli.data_view import describe_data
from thalweg.core.config import get_default, kind_of, plan_fields
from thalweg.core.wrapped_text import make_printable
from thalweg.data import Dataset
from thalweg.data.checks import is_own_data
from thalweg.engine.builders import apply_views, list_inert, make_world
from thalweg.engine.online import can_score_test_set
from thalweg.engine.plan import AnyPlan, BaselinePlan, Plan, get_method
from thalweg.engine.task import describe_metrics, describe_task, get_loss, list_metrics
from thalweg.forecast import Auto, Exact, resolve_forecast
from thalweg.local import LocalTraining
from thalweg.losses import LOSSES
from thalweg.recipes import Recipe
from thalweg.recipes.adaptive import list_adapted
from thalweg.recipes.monitoring import list_monitored
from thalweg.streams import World

# These parts are always shown; all others only if they differ from the default.
COMMON_PARTS = (
    *("data", "features", "target", "split", "clients", "passes", "stored", "warning"),
    *("task", "loss", "metrics", "net", "world", "learner"),
    *("memory", "forecast", "selection", "objective", "weights", "server"),
)
NOT_FOR_BASELINES = ("net", "augment", "faults")
SIZES = ("rounds", "ticks", "capacity")


class Branch(NamedTuple):
    """One line of the tree."""

    name: str
    line: str
    changes: str = ""  # compared with the plan without overrides
    is_default: bool = False


def plan_tree(
    plan: AnyPlan,
    default: AnyPlan | None,
    data: Dataset | None = None,
    *,
    is_remote: bool = False,
) -> Tree:
    """A plan as a tree. `default` is the plan without overrides; differences to it are marked.

    With the data, the task, the loss and the metrics are shown as well; for data of the user also
    features, target, split, passes and warnings. `is_remote`: clients are on other machines.
    """
    before = default or plan
    branches: list[Branch] = []
    world = None if data is None else make_world(plan.scenario, data, plan.seed)
    parts = [
        *_parts(plan.scenario, before.scenario, world),
        *_parts(get_method(plan), get_method(before), world),
    ]
    if data is not None:
        parts = [part for part in parts if part.name != "loss" or not part.is_default]
        parts += _task_branches(plan, data, {part.name for part in parts})
        if is_own_data(plan.scenario.data):
            parts += [Branch(*line) for line in describe_data(plan.scenario, data)]
    for name, line, changes, is_default in sorted(parts, key=lambda part: _rank(part.name)):
        is_ignored = isinstance(plan, BaselinePlan) and name in NOT_FOR_BASELINES
        is_common = name in COMMON_PARTS and name != "loss"  # the default depends on the task
        if not is_ignored and (is_common or not is_default):
            branches.append(Branch(name, line, changes, is_default))
    if isinstance(plan, Plan):
        is_regression = data is not None and data.task == "regression"
        adapted = list_adapted(plan.recipe) if is_regression else {}
        line = f"to a regression: {', '.join(f'{stage}={kind}' for stage, kind in adapted.items())}"
        branches += [Branch("adapted", line)] if adapted else []
        inert = {} if world is None else list_inert(plan, world, is_remote=is_remote)
        branches += [Branch("monitors", text) for text in list_monitored(plan.recipe, inert)]
    if isinstance(plan, BaselinePlan):
        whose = "one for all clients" if plan.baseline.pooled else "one for each client"
        changes = _changes(plan.baseline, get_method(before), ("pooled", "feedback"))
        branches.append(
            Branch("training", f"{whose}, after every {plan.baseline.feedback}", changes)
        )
    if isinstance(plan, Plan) and (line := _describe_ground_truth(plan.recipe, world)):
        branches.append(Branch("ground truth", line))
    if isinstance(plan, Plan) and isinstance(before, Plan):
        branches.append(
            Branch("local", describe_local(plan.local), _changes(plan.local, before.local))
        )
    if isinstance(plan, Plan):
        line = "; ".join(f"{stage}: {reason}" for stage, reason in inert.items())
        branches += [Branch("no effect", line)] if line else []
    sizes = ", ".join(f"{name} {getattr(plan.scenario, name)}" for name in SIZES)
    branches.append(Branch("sizes", sizes, _changes(plan.scenario, before.scenario, SIZES)))
    width = max(len(branch.name) for branch in branches) + 2
    tree = Tree(Text(make_printable(plan.title), style="bold"))
    for branch in branches:
        grid = Table.grid()
        grid.add_column(width=width, style="cyan")
        grid.add_column(overflow="fold")
        text = Text(make_printable(branch.line))
        if branch.changes:
            text.append(make_printable(f"   <- {branch.changes}"), style="yellow")
        is_warning = branch.name == "warning"
        grid.add_row(branch.name, text, style="bold red" if is_warning else None)
        tree.add(grid)
    return tree


def _task_branches(plan: AnyPlan, data: Dataset, shown: set[str]) -> list[Branch]:
    """The task, which follows from the data, its loss and its metrics."""
    branches = [Branch("task", describe_task(plan.scenario, data))]
    if isinstance(plan, Plan) and "loss" not in shown:
        branches.append(Branch("loss", describe(get_loss(plan.scenario, data), LOSSES)))
    metrics = list_metrics(plan.scenario, data)
    if isinstance(plan, BaselinePlan):
        world = make_world(plan.scenario, data, plan.seed)
        is_scored = can_score_test_set(plan, apply_views(data, world), world)
        requested = plan.scenario.metrics  # are only computed for models
        metrics = [
            metric
            for metric in metrics
            if metric.name.startswith("prequential") or (is_scored and metric.name not in requested)
        ]
    return [*branches, Branch("metrics", describe_metrics(metrics))]


def _parts(owner: Any, before: Any, world: World | None) -> list[Branch]:
    """The parts of a recipe, a baseline or a scenario that are chosen from a table."""
    return [
        Branch(
            field.name,
            describe(part, field.metadata["table"]) + _note(field.name, part, owner, world),
            _changes(part, getattr(before, field.name), table=field.metadata["table"]),
            is_default=part == getattr(before, field.name) == field.default,
        )
        for field in dataclasses.fields(owner)
        if "table" in field.metadata
        for part in (getattr(owner, field.name),)
    ]


def _note(name: str, part: Any, owner: Any, world: World | None) -> str:
    """What the automatic forecast of a recipe does; the status of secure aggregation."""
    if name == "secure_aggregation" and part is not None:
        return f" ({NOT_REVIEWED})"
    if not isinstance(part, Auto):
        return ""
    if not owner.uses_forecast:
        return " (no policy of this recipe uses it)"
    if world is None:
        return " (exact if the world has known states, else states are learned: growing)"
    num_states = world.state_table.num_states
    if isinstance(part.resolve(num_states), Exact):
        return f" (exact: the true probabilities of {num_states} known states)"
    return (
        " (growing: the data have no known states; each client learns its own from the classes of "
        "its batches)"
    )


def _describe_ground_truth(recipe: Recipe, world: World | None) -> str:
    """The ground truth that the recipe uses, which real devices do not have."""
    if world is None:
        note = " (if the world has known states)" if isinstance(recipe.forecast, Auto) else ""
        uses = [use + note * use.startswith("forecast:") for use in recipe.ground_truth]
    else:
        states = world.state_table.num_states
        forecast = resolve_forecast(recipe.forecast, states, recipe.uses_forecast)
        uses = list(dataclasses.replace(recipe, forecast=forecast).ground_truth)
    return ", ".join(uses)


def _rank(name: str) -> int:
    """Common parts first, in their order."""
    return COMMON_PARTS.index(name) if name in COMMON_PARTS else len(COMMON_PARTS)


def describe_local(local: LocalTraining) -> str:
    """The optimizer of a client, and the settings that differ from the default."""
    optimizer = local.optimizer
    changed = [*_changed_fields(local, ("optimizer",)), *_changed_fields(optimizer, ("name",))]
    note = " (all clients train in this process)" if local.keeps_optimizer else ""
    return f"{local.optimizer_name}({', '.join(changed)}){note}"


def describe(part: Any, table: dict[str, Any] | None = None) -> str:
    """The kind of a policy and its fields that differ from the default."""
    kind = _get_kind(part, table)
    changed = [] if part is None else _changed_fields(part)
    return f"{kind}({', '.join(changed)})" if changed else kind


def _get_kind(part: Any, table: dict[str, Any] | None) -> str:
    if part is None:
        return "none"
    return type(part).__name__.lower() if table is None else kind_of(part, table)


def _changed_fields(part: Any, without: tuple[str, ...] = ()) -> list[str]:
    """The fields of a policy that differ from the default, as name=value."""
    return [
        f"{field.name}={_short(value, field.metadata.get('table'))}"
        for field in plan_fields(part)
        for value in (getattr(part, field.name),)
        if field.name not in without and value != get_default(field)
    ]


def _short(value: Any, table: dict[str, Any] | None = None) -> str:
    if table is not None:
        return describe(value, table)
    return "(" + ", ".join(map(str, value)) + ")" if isinstance(value, tuple) else str(value)


def _changes(
    part: Any,
    before: Any,
    names: tuple[str, ...] | None = None,
    table: dict[str, Any] | None = None,
) -> str:
    """The differences between a part and the part of the recipe or the scenario."""
    if type(part) is not type(before):
        return f"was {_get_kind(before, table)}"
    if part is None:
        return ""
    names = names or tuple(field.name for field in plan_fields(part))
    return ", ".join(
        f"{name} was {_short(getattr(before, name))}"
        for name in names
        if getattr(part, name) != getattr(before, name)
    )
