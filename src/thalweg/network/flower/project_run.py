"""What a generated project runs at the server: the plan beside it, in a run folder of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from flwr.serverapp import Grid

from thalweg.core.errors import ConfigError
from thalweg.engine.plan import read_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.network.flower.liveness import hold_server_lock
from thalweg.network.flower.serve_options import FILE
from thalweg.network.flower.server_app import serve_run

FROM_CONFIG = {"min-clients": "min_clients", "deadline-s": "deadline_s", "data-dir": "data_dir"}


def run_project(grid: Grid, config: Mapping[str, bool | float | int | str], plan: Path) -> None:
    """Begin the run of a plan, or go on with it."""
    name = config.get("thalweg-run")
    if not isinstance(name, str) or not name:
        raise ConfigError("the run configuration needs thalweg-run, the folder of the run.")
    folder = RunFolder(Path(name))
    folder.open(read_plan(plan), command="flwr run", resume=True)
    folder.close()
    options = {ours: config[theirs] for theirs, ours in FROM_CONFIG.items() if theirs in config}
    (folder.path / FILE).write_text(json.dumps(options) + "\n")
    with hold_server_lock(folder.path):
        serve_run(grid, folder.path)
