"""What Flower starts at the server: the loop of `engine`, with clients on the network.

The run's configuration names one folder (`thalweg-run`), which has the plan and how long to wait for whom
(`serve.json`). Everything that happens goes there too: metrics and checkpoints as in any run, and `events.jsonl`:
who came, who went, who was refused and why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from thalweg.core.errors import ConfigError, ThalwegError
from thalweg.data import Dataset
from thalweg.engine.crowd import Crowd
from thalweg.engine.folder import RunFolder
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import Plan, read_plan
from thalweg.flower.attending import attended
from thalweg.flower.book import ClientBook
from thalweg.flower.federation import FlowerFederation
from thalweg.flower.serving import serving_of
from thalweg.nets import Net

RUN = "thalweg-run"  # of the run's configuration
EVENTS = "events.jsonl"

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the run of a folder to its end, from its last checkpoint if there is one."""
    folder = context.run_config.get(RUN)
    if not isinstance(folder, str):
        raise ConfigError(f"the run's configuration names no {RUN}; start it with thalweg serve.")
    with attended(Path(folder)):
        serve_run(grid, Path(folder))


def serve_run(grid: Grid, folder: Path) -> Result:
    """The same for any grid. A failure that will happen again is left in the folder (`failure.txt`)."""
    run_folder = RunFolder(folder)
    try:
        run_folder.write_failure(None)
        return _served(grid, folder)
    except ThalwegError as error:
        run_folder.write_failure(str(error))
        raise


def _served(grid: Grid, folder: Path) -> Result:
    serving = serving_of(folder)

    def federate(plan: Plan, data: Dataset, net: Net, crowd: Crowd) -> FlowerFederation:
        book, say = ClientBook(folder, crowd.world.num_clients), Diary(folder / EVENTS)
        return FlowerFederation(grid, plan, data, net, crowd, book, serving, say)

    return run_plan(
        read_plan(folder),
        out=folder,
        resume=True,
        data_dir=None if serving.data_dir is None else Path(serving.data_dir),
        federate=federate,
    )


class Diary:
    """Appends what happens to a file, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, event: Mapping[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **event})
        print(line, flush=True)
        with suppress(OSError), self._path.open("a") as file:
            file.write(line + "\n")
