"""The commands ``thalweg list`` and ``thalweg show``."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console
from rich.table import Table
from rich.text import Text

from thalweg.aggregation import ROBUST, SECURE_AGGREGATIONS, SERVER_RULES, STALENESS, WEIGHTS
from thalweg.bank import BANKS
from thalweg.baselines import BASELINES, LEARNERS, Baseline
from thalweg.cli.docstrings import convert_inline, format_docstring
from thalweg.cli.plan_view import plan_tree
from thalweg.core.errors import UnknownComponent, UnknownName
from thalweg.core.registry import NoImports, NotRegistered
from thalweg.core.transforms import TRANSFORMS
from thalweg.core.wrapped_text import make_printable
from thalweg.data import AUGMENTATIONS, SOURCES
from thalweg.drift import ACTIONS, ALARMS
from thalweg.engine.plan import any_plan_from_dict, plan_to_toml, read_plain_plan
from thalweg.forecast import FORECASTS
from thalweg.local import (
    DECAYS,
    GEOMETRIES,
    OBJECTIVES,
    OPTIMIZERS,
    PRIVACIES,
    STOPPINGS,
    LocalTraining,
    TorchOptimizer,
)
from thalweg.local.optimizers import list_torch_optimizers
from thalweg.losses import LOSSES
from thalweg.memory import POLICIES
from thalweg.nets import NETS
from thalweg.recipes import RECIPES, Recipe, get_recipe
from thalweg.sample_weights import SAMPLE_WEIGHTS
from thalweg.scenarios import SCENARIOS, Scenario
from thalweg.selection import RULES
from thalweg.serving import SERVINGS
from thalweg.sessions import SESSION_STARTS, SESSION_TRIGGERS
from thalweg.streams import ARRIVALS, DRIFTS, DYNAMICS, FAULTS, PARTITIONS, SCHEDULES, WORLDS

PARTS: dict[str, Mapping[str, Any]] = {
    "data": SOURCES,
    "net": NETS,
    "loss": LOSSES,
    "world": WORLDS,
    "world.partition": PARTITIONS,
    "world.arrivals": ARRIVALS,
    "world.dynamics": DYNAMICS,
    "sessions": SCHEDULES,
    "drift": DRIFTS,
    "drift.to.transform": TRANSFORMS,
    "augment": AUGMENTATIONS,
    "faults": FAULTS,
    "memory": POLICIES,
    "sample_weights": SAMPLE_WEIGHTS,
    "forecast": FORECASTS,
    "selection": RULES,
    "objective": OBJECTIVES,
    "local": {"local-training": LocalTraining},
    "local.optimizer": OPTIMIZERS,
    "local.decay": DECAYS,
    "weights": WEIGHTS,
    "staleness": STALENESS,
    "robust": ROBUST,
    "server": SERVER_RULES,
    "server.decay": DECAYS,
    "bank": BANKS,
    "session_start": SESSION_STARTS,
    "session_trigger": SESSION_TRIGGERS,
    "geometry": GEOMETRIES,
    "stopping": STOPPINGS,
    "privacy": PRIVACIES,
    "secure_aggregation": SECURE_AGGREGATIONS,
    "alarm": ALARMS,
    "alarm.action": ACTIONS,
    "serving": SERVINGS,
    "learner": LEARNERS,
}


# Fields of a scenario that are values, not components
SIZES = {
    field.name: field
    for field in dataclasses.fields(Scenario)
    if field.name not in (*PARTS, "name", "local")
}


def list_command(as_json: bool) -> None:
    menu: dict[str, Mapping[str, Any]] = {
        "recipe": RECIPES,
        "baseline": BASELINES,
        "scenario": SCENARIOS,
        **PARTS,
    }
    if as_json:
        print(json.dumps({what: sorted(table) for what, table in menu.items()}, indent=2))
        return
    console = Console()
    for what, table in menu.items():
        console.print(Text(f"{what}", style="bold"))
        console.print(_list_choices(table))
    console.print("\nthalweg show NAME explains one of them.", highlight=False)


def _list_choices(table: Mapping[str, Any]) -> Table:
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows.add_column(style="cyan", no_wrap=True)
    rows.add_column()
    for name, thing in table.items():
        rows.add_row(name, Text(convert_inline(first_sentence(thing))))
    return rows


def _show_plan(console: Console, path: Path) -> None:
    """Show the plan of a run folder. Code that it names is not imported."""
    plain, where = read_plain_plan(path)
    try:
        plan = any_plan_from_dict(plain, NoImports())
    except NotRegistered as error:
        line = make_printable(f"{where} without a summary: {error}\n")
        console.print(line, highlight=False, markup=False)
        text = tomli_w.dumps(plain)
    else:
        console.print(plan_tree(plan, None))
        text = "\n" + plan_to_toml(plan)
    console.print(make_printable(text), highlight=False, markup=False)


def show_command(name: str) -> None:
    console = Console()
    if Path(name).is_dir() or name.endswith(".toml"):
        _show_plan(console, Path(name))
        return
    if name in RECIPES:
        _show_whole(console, name, RECIPES[name])
        _print_namesakes(console, name)
        return
    if name in BASELINES:
        _show_whole(console, name, BASELINES[name])
        return
    if "+" in name:
        _show_whole(console, name, get_recipe(name))
        return
    if name in SCENARIOS:
        _show_whole(console, name, SCENARIOS[name])
        return
    for what, table in PARTS.items():
        if name in (*table, *(f"{what}={kind}" for kind in table)):
            kind = name.removeprefix(f"{what}=")
            _show_policy(console, what, kind, table[kind])
            return
    kind = name.removeprefix("local.optimizer=").lower()
    if "." not in kind and kind in list_torch_optimizers():
        _show_policy(console, "local.optimizer", kind, TorchOptimizer)
        return
    if name in PARTS and len(PARTS[name]) > 1:
        _show_stage(console, name)
        return
    if name in SIZES:
        _show_size(console, name)
        return
    stage, _, field_name = name.rpartition(".")
    if stage in PARTS:
        _show_field(console, stage, field_name)
        return
    everything = [
        *RECIPES,
        *BASELINES,
        *SCENARIOS,
        *PARTS,
        *SIZES,
        *(kind for table in PARTS.values() for kind in table),
    ]
    raise UnknownComponent(name, everything)


def first_sentence(thing: Any) -> str:
    """Return the first line of a docstring, which `thalweg list` shows."""
    return doc_of(thing).partition("\n")[0]


def doc_of(thing: Any) -> str:
    return inspect.cleandoc(getattr(thing, "func", thing).__doc__ or "")


def _print_namesakes(console: Console, name: str) -> None:
    """Point to the component that has the same name as a recipe."""
    for what, table in PARTS.items():
        if name in table:
            console.print(f"thalweg show {what}={name} explains its {what}.", highlight=False)


def _show_whole(
    console: Console, name: str, make: Callable[[], Recipe | Baseline | Scenario] | Recipe
) -> None:
    whole = make if isinstance(make, Recipe) else make()
    console.print(Text(name, style="bold"))
    if not isinstance(make, Recipe):
        _print_docstring(console, make)
    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    rows.add_column(style="cyan", no_wrap=True)
    rows.add_column()
    for field in dataclasses.fields(whole):
        rows.add_row(field.name, Text(str(getattr(whole, field.name))))
    console.print(rows)
    console.print(
        "\nChange any of it with --set, such as --set " + _example(whole), highlight=False
    )


def _example(whole: Recipe | Baseline | Scenario) -> str:
    if isinstance(whole, Baseline):
        return "pooled=true"
    return "memory.budget=0.3" if isinstance(whole, Recipe) else "world.num_clients=100"


def _show_stage(console: Console, what: str) -> None:
    """Print the choices for a part; for data also the options of a user's table."""
    if what == "data":
        _show_policy(console, what, "table", PARTS[what]["table"], title="your own table")
        console.print()
    console.print(Text.assemble((what, "bold"), "   choices"))
    console.print(_list_choices(PARTS[what]))
    example = next(iter(PARTS[what]))
    console.print(f"\nthalweg show {what}={example} explains one of them.", highlight=False)


def _show_size(console: Console, name: str) -> None:
    """Print a field of a scenario with its type, default and description."""
    field = SIZES[name]
    console.print(Text.assemble((name, "bold"), "   a field of the scenario"))
    console.print(f"  {name}: {field.type}{_format_default(field)}", highlight=False, markup=False)
    _print_note(console, field_notes(Scenario).get(name, ""))
    console.print(f"\nSet it with --set {name}=...", highlight=False, markup=False)


def _show_policy(console: Console, what: str, name: str, cls: type[Any], title: str = "") -> None:
    console.print(Text.assemble((name, "bold"), f"   {title or f'a choice for {what}'}"))
    _print_docstring(console, cls)
    notes = field_notes(cls)
    for field in dataclasses.fields(cls):
        definition = f": {field.type}{_format_default(field)}"
        line = Text.assemble(("  " + field.name, "cyan"), definition)
        console.print(line, highlight=False)
        if field.name in notes:
            _print_note(console, notes[field.name])
    option = f"--set {what}={name}"
    if cls is LocalTraining:  # the only choice
        option = "--set local.lr=0.1"
    elif what == "data" and name == "table":
        option = "--on FILE.csv --set data.label=NAME --set data.drop=a,b"
    console.print(f"\nUse it with {option}", highlight=False)


def _show_field(console: Console, stage: str, name: str) -> None:
    """Print the components of a stage that have a field, with its type, default and description.

    Components with the same field are printed together, so that the answer fits on a screen.
    """
    components: dict[tuple[str, str], list[str]] = {}
    for kind, cls in PARTS[stage].items():
        for field in dataclasses.fields(cls):
            if field.name == name:
                definition = f"{field.type}{_format_default(field)}"
                components.setdefault((definition, field_notes(cls).get(name, "")), []).append(kind)
    if not components:
        known = {each.name for cls in PARTS[stage].values() for each in dataclasses.fields(cls)}
        raise UnknownName(f"field of {stage}", name, known)
    kinds = [kind for group in components.values() for kind in group]
    title = Text.assemble((f"{stage}.{name}", "bold"), f"   a field of {', '.join(kinds)}")
    console.print(title, highlight=False)
    for (definition, note), group in components.items():
        owners = f"   ({', '.join(group)})" if len(components) > 1 else ""
        line = Text.assemble(("  " + name, "cyan"), f": {definition}{owners}")
        console.print(line, highlight=False, no_wrap=True, overflow="ellipsis")
        if note:
            _print_note(console, note)
    console.print(f"\nthalweg show {stage}={kinds[0]} explains the component.", highlight=False)


def _print_docstring(console: Console, thing: Any) -> None:
    text = format_docstring(doc_of(thing), console.width)
    console.print(text + "\n", highlight=False, markup=False, soft_wrap=True)


def _print_note(console: Console, note: str) -> None:
    """Print the docstring of a field, indented."""
    lines = textwrap.wrap(convert_inline(note), console.width - 6, break_on_hyphens=False)
    console.print(Text(textwrap.indent("\n".join(lines), " " * 6), style="dim"), highlight=False)


def _format_default(field: dataclasses.Field[Any]) -> str:
    return "" if field.default is dataclasses.MISSING else f" = {field.default!r}"


def field_notes(cls: type[Any]) -> dict[str, str]:
    """Return the docstrings under the fields of a dataclass, read from its source."""
    owners = [owner for owner in reversed(cls.__mro__) if dataclasses.is_dataclass(owner)]
    return {name: note for owner in owners for name, note in _own_field_notes(owner).items()}


def _own_field_notes(cls: type[Any]) -> dict[str, str]:
    """Return the docstrings of the fields that the class itself defines."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    return {
        above.target.id: " ".join(str(below.value.value).split())
        for above, below in itertools.pairwise(body.body)
        if isinstance(above, ast.AnnAssign)
        and isinstance(above.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }
