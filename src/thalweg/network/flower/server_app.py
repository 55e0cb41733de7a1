"""The ServerApp: runs the engine's loop with clients on the network.

The run's configuration has the run folder (`thalweg-run`), which contains the plan and the options
(`serve.json`). The ServerApp writes metrics and checkpoints there, as in any run, and connections
and rejections of clients to `events.jsonl`.
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
from thalweg.engine.builders import check_can_be_served
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.loop import run_plan
from thalweg.engine.plan import Plan, read_plan
from thalweg.engine.result import Result
from thalweg.engine.run_folder import RunFolder
from thalweg.nets import Net
from thalweg.network.flower.federation import FlowerFederation
from thalweg.network.flower.liveness import hold_server_lock
from thalweg.network.flower.registry import ClientRegistry
from thalweg.network.flower.serve_options import FILE as OPTIONS_FILE
from thalweg.network.flower.serve_options import read_serve_options

RUN = "thalweg-run"  # key of the run's configuration
EVENTS = "events.jsonl"
FROM_CONFIG = {
    "min-clients": "min_clients",
    "deadline-s": "deadline_s",
    "share": "share",
    "grace-s": "grace_s",
    "data-dir": "data_dir",
}

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the plan of a run folder, from its last checkpoint if there is one."""
    folder = context.run_config.get(RUN)
    if not isinstance(folder, str):
        raise ConfigError(f"the run's configuration has no {RUN}; start it with thalweg serve.")
    with hold_server_lock(Path(folder)):
        serve_run(grid, Path(folder))


def run_project(grid: Grid, config: Mapping[str, bool | float | int | str], plan: Path) -> None:
    """Start or resume the run of a generated project (`project.write_project`)."""
    name = config.get("thalweg-run")
    if not isinstance(name, str) or not name:
        raise ConfigError("the run configuration has no thalweg-run; set it to the run folder.")
    folder = RunFolder(Path(name))
    folder.open(read_plan(plan), command="flwr run", resume=True)
    folder.close()
    options = {ours: config[theirs] for theirs, ours in FROM_CONFIG.items() if theirs in config}
    (folder.path / OPTIONS_FILE).write_text(json.dumps(options) + "\n")
    with hold_server_lock(folder.path):
        serve_run(grid, folder.path)


def serve_run(grid: Grid, folder: Path) -> Result:
    """Run the plan of a run folder with a grid; write the reason of a failure to `failure.txt`."""
    run_folder = RunFolder(folder)
    try:
        run_folder.write_failure(None)
        return _serve(grid, folder)
    except ThalwegError as error:
        run_folder.write_failure(str(error))
        raise


def _serve(grid: Grid, folder: Path) -> Result:
    serve_options, plan = read_serve_options(folder), read_plan(folder)
    check_can_be_served(plan.recipe)

    def federate(plan: Plan, data: Dataset, net: Net, client_pool: ClientPool) -> FlowerFederation:
        registry, on_event = (
            ClientRegistry(
                folder,
                client_pool.world.num_clients,
                None if serve_options.node_keys is None else Path(serve_options.node_keys),
            ),
            EventLog(folder / EVENTS),
        )
        return FlowerFederation(
            grid, plan, data, net, client_pool, registry, serve_options, on_event
        )

    return run_plan(
        plan,
        out=folder,
        resume=True,
        data_dir=None if serve_options.data_dir is None else Path(serve_options.data_dir),
        federate=federate,
    )


class EventLog:
    """Appends events to a file, one JSON object per line, and prints them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, event: Mapping[str, Any]) -> None:
        line = json.dumps({"time": round(time.time(), 3), **event})
        print(line, flush=True)
        with suppress(OSError), self._path.open("a") as file:
            file.write(line + "\n")
