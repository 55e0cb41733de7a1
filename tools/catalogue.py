"""Write the catalogue of components and the names for shell completion from the registries.

    python tools/catalogue.py

The files are `docs/catalogue.md` and `src/thalweg/cli/names.json`. A test compares both with the
registries.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thalweg.baselines import BASELINES
from thalweg.cli.catalogue import PARTS, first_sentence
from thalweg.cli.docstrings import convert_inline
from thalweg.recipes import RECIPES, Recipe
from thalweg.scenarios import SCENARIOS, Scenario
from thalweg.scenarios.studies import STUDIES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/catalogue.md"
NAMES = ROOT / "src/thalweg/cli/names.json"
INTRODUCTION = """\
# Catalogue of components

This page is written by `python tools/catalogue.py` from the registries; do not edit it.
`thalweg list` prints the same names, and `thalweg show NAME` explains one of them. A component is
chosen with `--set`, for example `--set memory=fifo` or `--set weights=equal`, and its fields with
`--set memory.budget=0.3`.
"""
# What the choices of a part decide, and the page about it.
NOTES = {
    "recipe": ("One component for each stage: a method", "recipes/README.md"),
    "baseline": ("Online learners without a federation", "how-to-real-streams.md"),
    "scenario": ("The problem: data, world, sizes and net", "data.md"),
    "data": ("The data set", "data.md"),
    "net": ("The model; `--model` uses your own module", "how-to-model.md"),
    "loss": ("The loss of a sample", "how-to-regression.md"),
    "world": ("How data reach the clients", "architecture.md"),
    "world.partition": ("How samples are divided among clients or states", ""),
    "world.arrivals": ("How many samples arrive", ""),
    "world.dynamics": ("How state probabilities change over time", "latent-states.md"),
    "sessions": ("When each client is a member", "how-to-sessions.md"),
    "drift": ("Changes of labels and inputs over time", "how-to-drift.md"),
    "drift.to.transform": ("Changes of inputs", "how-to-drift.md"),
    "augment": ("Augmentation of training images", ""),
    "faults": ("Lost and late responses", "how-to-unreliable.md"),
    "memory": ("Which samples a client keeps", ""),
    "sample_weights": ("How much each stored sample counts", ""),
    "forecast": ("Predictions of latent states", "recipes/sfedpo.md"),
    "selection": ("Which clients take part in a round", "how-to-select.md"),
    "objective": ("What a client minimises", ""),
    "local": ("Local training", "how-to-optimizer.md"),
    "local.optimizer": ("The optimizer of clients", "how-to-optimizer.md"),
    "local.decay": ("The learning-rate schedule", "how-to-optimizer.md"),
    "server.decay": ("The schedule of the server's learning rate", "recipes/scaffold.md"),
    "weights": ("How much each update counts", ""),
    "staleness": ("What happens to late updates", "how-to-unreliable.md"),
    "robust": ("Protection against forged updates", "how-to-robust.md"),
    "server": ("How updates change the model", "results/server-rules.md"),
    "bank": ("One model or several", "recipes/README.md"),
    "session_start": ("The first model of a session", "how-to-sessions.md"),
    "session_trigger": ("When sessions start without a schedule", "how-to-sessions.md"),
    "geometry": ("The geometry of local steps", "recipes/fedomd.md"),
    "stopping": ("When a client stops to train", "decisions/0011-stopping-and-streams.md"),
    "privacy": ("Noise on updates, with privacy accounting", ""),
    "secure_aggregation": ("Sums without single updates", "secure-aggregation.md"),
    "alarm": ("Change detection per client", "how-to-alarms.md"),
    "alarm.action": ("What an alarm changes", "how-to-alarms.md"),
    "serving": ("Which of its predictors a client uses", "serving.md"),
    "learner": ("The learner of a baseline", "how-to-real-streams.md"),
}  # fmt: skip


def make_page() -> str:
    """Return the text of the catalogue."""
    menu: dict[str, Mapping[str, Any]] = {
        "recipe": RECIPES,
        "baseline": BASELINES,
        "scenario": SCENARIOS,
        **PARTS,
    }
    sections = []
    for part, table in menu.items():
        note, page = NOTES.get(part, ("", ""))
        text = f"[{note}]({page})." if page else f"{note}." if note else ""
        rows = [f"| `{name}` | {_describe(thing)} |" for name, thing in table.items()]
        head = ["| name | description |", "|---|---|"]
        sections.append("\n".join([f"## {part}", "", *([text, ""] if text else []), *head, *rows]))
    return "\n\n".join([INTRODUCTION.rstrip(), *sections]) + "\n"


def make_names() -> dict[str, list[str]]:
    """Return the names that shells complete."""
    return {
        "recipes": [*RECIPES, *BASELINES],
        "scenarios": [*SCENARIOS],
        "studies": [*STUDIES],
        "settings": _list_settings(),
        "choices": sorted({name for table in PARTS.values() for name in table}),
    }


def _describe(thing: Any) -> str:
    return convert_inline(first_sentence(thing)).replace("|", "\\|")


def _list_settings() -> list[str]:
    """Return the choices of every part, and its fields with the default if they have only one."""
    settings = [f"{part}={name}" for part, table in PARTS.items() for name in table]
    defaults: dict[str, set[str]] = {}
    wholes: list[tuple[str, type[Any]]] = [("", Recipe), ("", Scenario)]
    wholes += [(f"{part}.", cls) for part, table in PARTS.items() for cls in table.values()]
    for prefix, cls in wholes:
        for field in dataclasses.fields(cls):
            name = f"{prefix}{field.name}"
            if name not in PARTS and name != "name":
                defaults.setdefault(name, set()).add(_format(field.default))
    settings += [
        f"{name}={next(iter(found)) if len(found) == 1 else ''}" for name, found in defaults.items()
    ]
    return sorted(settings)


def _format(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, int | float | str) else ""


def main() -> None:
    PAGE.write_text(make_page(), encoding="utf-8")
    NAMES.write_text(json.dumps(make_names(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
