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
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.loop import Result, run_plan
from thalweg.engine.plan import Plan, read_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.nets import Net
from thalweg.network.flower.federation import FlowerFederation
from thalweg.network.flower.liveness import hold_server_lock
from thalweg.network.flower.registry import ClientRegistry
from thalweg.network.flower.serve_options import read_serve_options

RUN = "thalweg-run"  # of the run's configuration
EVENTS = "events.jsonl"

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the run of a folder to its end, from its last checkpoint if there is one."""
    folder = context.run_config.get(RUN)
    if not isinstance(folder, str):
        raise ConfigError(f"the run's configuration names no {RUN}; start it with thalweg serve.")
    with hold_server_lock(Path(folder)):
        serve_run(grid, Path(folder))


def serve_run(grid: Grid, folder: Path) -> Result:
    """The same for any grid. A failure that will happen again is left in the folder (`failure.txt`)."""
    run_folder = RunFolder(folder)
    try:
        run_folder.write_failure(None)
        return _serve(grid, folder)
    except ThalwegError as error:
        run_folder.write_failure(str(error))
        raise


def _serve(grid: Grid, folder: Path) -> Result:
    serve_options = read_serve_options(folder)

    def federate(plan: Plan, data: Dataset, net: Net, client_pool: ClientPool) -> FlowerFederation:
        registry, on_event = (
            ClientRegistry(folder, client_pool.world.num_clients),
            EventLog(folder / EVENTS),
        )
        return FlowerFederation(
            grid, plan, data, net, client_pool, registry, serve_options, on_event
        )

    return run_plan(
        read_plan(folder),
        out=folder,
        resume=True,
        data_dir=None if serve_options.data_dir is None else Path(serve_options.data_dir),
        federate=federate,
    )


class EventLog:
    """Appends what happens to a file, one line of JSON each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, event: Mapping[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **event})
        print(line, flush=True)
        with suppress(OSError), self._path.open("a") as file:
            file.write(line + "\n")
