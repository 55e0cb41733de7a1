"""``thalweg init``: a small project with a table, a model, a memory policy and a script."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path

import typer

from thalweg.core.errors import ConfigError, RunError

TABLE = "pumps.csv"
PUMPS, HOURS = 8, 150
REPEATED = 0.05  # share of the rows that is written twice


def init_command(folder: Path) -> None:
    """Write the project and print how to start it."""
    for file in write_example(folder):
        typer.echo(file)
    typer.echo(f"\nstart it with: cd {folder} && python run.py")


def write_example(folder: Path) -> list[Path]:
    """Write the files of the project into a new or empty folder; return their paths."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: expected a new or empty folder; choose another one.")
    files = {
        TABLE: make_table(),
        "net.py": NET,
        "memory.py": MEMORY,
        "run.py": RUN,
        "README.md": README,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror}.") from error
    return [folder / name for name in files]


def make_table(seed: int = 0) -> str:
    """Return measurements of pumps as CSV text, always the same for a seed.

    The table has the problems of many tables: a row number, a column that is known only after the
    target (cost), repeated rows, a time, and texts. After half of the time, the thermometers of
    every second pump show 8 degrees more.
    """
    rng = random.Random(seed)
    start = datetime(2026, 1, 5)
    worn = [rng.random() < 0.4 for _ in range(PUMPS)]
    rows = []
    for hour in range(HOURS):
        for pump in range(PUMPS):
            if rng.random() < 0.3:
                worn[pump] = not worn[pump]
            is_worn, load = worn[pump], rng.choice(["low", "medium", "high"])
            heat = {"low": 0, "medium": 3, "high": 6}[load]
            shift = 8 if hour >= HOURS // 2 and pump % 2 else 0
            rows.append(
                [
                    f"{start + timedelta(hours=hour):%Y-%m-%d %H:%M}",
                    f"pump-{pump}",
                    load,
                    f"{rng.gauss(48 + heat + 4 * is_worn + shift, 2.5):.1f}",
                    f"{rng.gauss(1.0 + 0.4 * is_worn, 0.3):.2f}",
                    f"{rng.gauss(3.0 - 0.2 * is_worn, 0.2):.2f}",
                    str(rng.randint(80, 300) if is_worn else 0),
                    "worn" if is_worn else "ok",
                ]
            )
            if rng.random() < REPEATED:
                rows.append(rows[-1])
    lines = ["time,pump,load,temperature,vibration,pressure,cost,state"]
    return "\n".join([*lines, *(",".join(row) for row in rows)]) + "\n"


NET = '''\
"""A model: any torch.nn.Module that maps the features of a sample to one output per class.

LazyLinear takes the number of features from the data. For more classes: --set
net.options.num_classes=3, or net={"options": {"num_classes": 3}} in Python.
"""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, num_classes: int = 2, hidden: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LazyLinear(hidden), nn.ReLU(), nn.Linear(hidden, num_classes)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)
'''

MEMORY = '''\
"""A memory policy: which samples a client keeps when new ones arrive."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Newest:
    """Keep the newest samples, at most `limit`."""

    limit: int = 50

    def init(self, capacity, held):
        return None  # no state

    def keep(self, state, context, rng):
        """Return the state and the positions to keep: stored samples first, then the new ones."""
        total = context.held + context.num_new
        return None, np.arange(total)[-min(self.limit, context.capacity) :]
'''

RUN = '''\
"""Train on pumps.csv. Takes a few seconds: python run.py [ROUNDS]"""

import io
import sys
from dataclasses import replace
from pathlib import Path

from pyarrow import csv

import thalweg
from memory import Newest
from net import Net

FILE = Path(__file__).with_name("pumps.csv")


def main(rounds=None):
    lines = dict.fromkeys(FILE.read_text().splitlines())  # without repeated rows
    table = csv.read_csv(io.BytesIO("\\n".join(lines).encode()))
    data = thalweg.Dataset.from_frame(
        table,
        label="state",
        client="pump",
        time="time",
        drop=["cost"],  # known only after a repair
    )
    for recipe in (
        thalweg.recipes.fedavg(),
        replace(thalweg.recipes.fedavg(), name="newest", memory=Newest()),
    ):
        result = thalweg.run(recipe, data, model=Net, rounds=rounds)
        score = result.final["prequential_accuracy"]
        print(f"{recipe.name:8} accuracy on arriving rows {score:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None)
'''

README = f"""\
# Pumps

Hourly measurements of eight pumps, and whether a pump is worn. Every pump is a client.

    python run.py

trains a model of your own (`net.py`) with FedAvg, and again with a memory policy of your own
(`memory.py`). The same from the command line, with a page that compares both:

    thalweg compare fedavg fedavg,memory=memory.py:Newest --on {TABLE} --model net.py:Net \\
        --set data.label=state --set data.client=pump --set data.time=time --set data.drop=cost

A run and its predictions (for a table with the same features, or for this one):

    thalweg run fedavg --on {TABLE} --out runs/first --set data.label=state \\
        --set data.client=pump --set data.time=time --set data.drop=cost
    thalweg predict runs/first --data {TABLE} --out predicted.csv

Next steps:

- replace `{TABLE}` by your own table and name its columns;
- `thalweg list` shows other recipes, `thalweg show fedavg` explains one;
- `thalweg run --help` shows the options.
"""
