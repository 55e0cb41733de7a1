"""A process that runs cells: reads one JSON request per line, writes one JSON message per line."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thalweg.core.errors import ThalwegError, format_warning
from thalweg.core.remedies import messages_for
from thalweg.data import Dataset
from thalweg.engine.baseline import run_any_plan
from thalweg.engine.loop import Progress
from thalweg.engine.plan import AnyPlan, any_plan_from_toml
from thalweg.engine.trackers import make_trackers, track_run

CellMessage = dict[str, Any]  # "event", and "row" or "reason"


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    warnings.formatwarning = format_warning
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr  # output of policies must not mix with messages
    loaded: dict[str, Dataset] = {}

    def send_message(message: CellMessage) -> None:
        try:
            output.write(json.dumps(message) + "\n")
            output.flush()
        except BrokenPipeError:  # the parent process has ended; the cell can be resumed
            os._exit(0)

    for line in sys.stdin:
        execute_request(json.loads(line), loaded, send_message)


def execute_request(
    request: dict[str, Any], loaded: dict[str, Dataset], send_message: Callable[[CellMessage], None]
) -> None:
    """Run a cell. Send a message after each round and at its end ("done" or "failed")."""
    with messages_for(request["caller"]):
        _run_cell(request, loaded, send_message)


def _run_cell(
    request: dict[str, Any], loaded: dict[str, Dataset], send_message: Callable[[CellMessage], None]
) -> None:
    def report_progress(progress: Progress) -> None:
        send_message({"event": "round", "row": dict(progress.row)})

    try:
        plan = any_plan_from_toml(request["plan"], "the plan of a cell")
        data_dir = None if request["data_dir"] is None else Path(request["data_dir"])
        trackers = make_trackers(request["track"], Path(request["out"]))
        with track_run(trackers, report_progress, _print_warning) as tracking:
            tracking.result = run_any_plan(
                plan,
                workers=1,
                device=request["device"],
                out=Path(request["out"]),
                data_dir=data_dir,
                watch=tracking.watch,
                command=request["command"],
                data=_load_data(plan, data_dir, loaded),
            )
    except ThalwegError as error:
        send_message({"event": "failed", "reason": str(error)})
    except Exception as error:
        traceback.print_exc()
        send_message({"event": "failed", "reason": f"{type(error).__name__}: {error}"})
    else:
        send_message({"event": "done"})


def _print_warning(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr, flush=True)


def _load_data(plan: AnyPlan, data_dir: Path | None, loaded: dict[str, Dataset]) -> Dataset:
    """Return the data of a plan; the last data set stays loaded, because most cells share it."""
    key = f"{plan.scenario.data} {plan.seed}"
    if key not in loaded:
        loaded.clear()
        loaded[key] = plan.scenario.data.load(data_dir, plan.seed)
    return loaded[key]


if __name__ == "__main__":
    main()
