"""Run the cells of a table in parallel: each cell is a run in its own folder.

Long-lived worker processes, one per core, run the cells. Finished cells are not run again,
interrupted cells are resumed, and the failure of a cell does not stop the others.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from thalweg.core.config import check_not_loading, find_source
from thalweg.core.errors import RunError, ThalwegError, require
from thalweg.core.remedies import get_caller
from thalweg.engine.baseline import run_any_plan
from thalweg.engine.devices import check_device_name, check_usable, choose_actor_device
from thalweg.engine.loop import Progress
from thalweg.engine.plan import AnyPlan, plan_differences, plan_to_toml, read_any_plan
from thalweg.engine.processes import count_cores, worker_environment
from thalweg.engine.ray.cluster import RayCluster
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.trackers import make_trackers, track_run


@dataclass(frozen=True)
class CellJob:
    """A cell to run: the plan of a recipe or a baseline, its folder, and the name of its row."""

    recipe: str
    plan: AnyPlan
    folder: Path
    command: str


@dataclass(frozen=True)
class CellEvent:
    """Progress of a cell: the end of a round, or the end of the cell (`row` is then None)."""

    job: CellJob
    rounds_done: int
    row: Mapping[str, Any] | None
    failure: str | None = None  # the reason if the cell failed


CellCallback = Callable[[CellEvent], None]


def run_cells(
    jobs: Sequence[CellJob],
    *,
    workers: int | RayCluster | None = None,
    data_dir: Path | None = None,
    watch: CellCallback | None = None,
    track: Sequence[str] = (),
    device: str = "auto",
) -> dict[Path, str]:
    """Run the unfinished cells. Return the folders of cells that failed, with the reasons.

    `track` are names of trackers. Each cell is a run of its own in them. The nodes of a Ray cluster
    write to the folders of the cells, which must be in a shared file system.
    """
    check_not_loading()
    check_device_name(device)
    todo = [job for job in jobs if not is_done(job)]
    if isinstance(workers, RayCluster):
        from thalweg.engine.ray.cells import run_cells_on_ray

        for job in todo:
            require(
                not _needs_this_process(job),
                f"{job.recipe}: other machines cannot load data or classes of a script or a "
                "notebook. Put them into files that all nodes can read, or use the engine fast.",
            )
        if device != "auto":  # each run uses the GPU that Ray reserves for it
            choose_actor_device(device, workers.num_gpus)
        return run_cells_on_ray(todo, workers, data_dir, watch, track, device) if todo else {}
    check_usable(device)
    workers = min(workers or count_cores(), len(todo))
    if workers <= 1 or any(map(_needs_this_process, todo)):
        return _run_in_process(todo, data_dir, watch, track, device)
    return _run_in_workers(todo, workers, data_dir, watch, track, device)


def _needs_this_process(job: CellJob) -> bool:
    """Return whether a plan has objects or data of this session, or classes of a script.

    Another process could not load them, or would run the script again.
    """
    local = (f"{find_source('__main__')}:", "__main__:", '"python:', '"in-memory"')
    plan = plan_to_toml(job.plan)
    return any(source in plan for source in local)


def make_request(
    job: CellJob, data_dir: Path | None, track: Sequence[str], device: str
) -> dict[str, Any]:
    """Return the request for `cell_worker.execute_request`."""
    return {
        "plan": plan_to_toml(job.plan),
        "out": str(job.folder),
        "data_dir": None if data_dir is None else str(data_dir),
        "command": job.command,
        "track": list(track),
        "device": device,
        "caller": get_caller(),
    }


def is_done(job: CellJob, folder: RunFolder | None = None) -> bool:
    """Return whether the cell is finished. Another plan in its folder is an error.

    Pass the `folder` of the job if it is read further: its files are then verified once.
    """
    if not (job.folder / "plan.toml").exists():
        return False
    if changes := plan_differences(read_any_plan(job.folder), job.plan):
        raise RunError(
            f"{job.folder} contains a run with another configuration; choose another --out:\n  "
            + "\n  ".join(changes)
        )
    folder = folder or RunFolder(job.folder)
    folder.check_user_files(job.plan)
    return folder.is_finished(job.plan.scenario.rounds)


def _run_in_process(
    jobs: Sequence[CellJob],
    data_dir: Path | None,
    watch: CellCallback | None,
    track: Sequence[str],
    device: str,
) -> dict[Path, str]:
    failures: dict[Path, str] = {}
    for job in jobs:

        def report_progress(progress: Progress, job: CellJob = job) -> None:
            if watch is not None:
                watch(CellEvent(job, progress.rounds_done, progress.row))

        with suppress(RunError):  # running the cell will report a read-only folder
            RunFolder(job.folder).write_failure(None)
        failure = None
        try:
            with track_run(make_trackers(track, job.folder), report_progress) as tracking:
                tracking.result = run_any_plan(
                    job.plan,
                    out=job.folder,
                    data_dir=data_dir,
                    watch=tracking.watch,
                    command=job.command,
                    device=device,
                )
        except ThalwegError as error:
            failure = str(error)
        record_end(job, failure, failures, watch)
    return failures


def record_end(
    job: CellJob, failure: str | None, failures: dict[Path, str], watch: CellCallback | None
) -> None:
    """Report the end of a cell, and store the reason of a failure in its folder."""
    if failure is not None:
        failures[job.folder] = failure
        with suppress(RunError):  # a folder that cannot be written to may be what failed
            RunFolder(job.folder).write_failure(failure)
    if watch is not None:
        watch(CellEvent(job, job.plan.scenario.rounds, None, failure))


def _run_in_workers(
    jobs: Sequence[CellJob],
    workers: int,
    data_dir: Path | None,
    watch: CellCallback | None,
    track: Sequence[str],
    device: str,
) -> dict[Path, str]:
    """Run cells in worker processes. One thread per worker puts its messages into a queue."""
    todo: queue.SimpleQueue[CellJob] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    messages: queue.SimpleQueue[tuple[CellJob, dict[str, Any]]] = queue.SimpleQueue()
    failures: dict[Path, str] = {}
    with _worker_processes(workers) as (processes, closing):
        for index in range(workers):
            feed = partial(
                _feed_worker, processes, index, todo, messages, data_dir, track, device, closing
            )
            # With the context of the caller, which determines how messages are written.
            thread = threading.Thread(target=copy_context().run, args=(feed,), daemon=True)
            thread.start()
        unfinished = len(jobs)
        while unfinished:
            job, message = messages.get()
            if message["event"] == "round":
                if watch is not None:
                    watch(CellEvent(job, message["row"]["round"], message["row"]))
                continue
            unfinished -= 1
            record_end(job, message.get("reason"), failures, watch)
    return failures


def _feed_worker(
    processes: list[subprocess.Popen[str]],
    index: int,
    todo: queue.SimpleQueue[CellJob],
    messages: queue.SimpleQueue[tuple[CellJob, dict[str, Any]]],
    data_dir: Path | None,
    track: Sequence[str],
    device: str,
    closing: threading.Event,
) -> None:
    """Give jobs to one process until none is left; replace the process if it dies."""
    while not closing.is_set():
        try:
            job = todo.get_nowait()
        except queue.Empty:
            return
        request = make_request(job, data_dir, track, device)
        with suppress(RunError):  # running the cell will report a read-only folder
            RunFolder(job.folder).write_failure(None)
        for message in _read_messages(processes[index], request):
            if message is None:
                if closing.is_set():  # it was ended by `_worker_processes`
                    return
                code = _kill_worker(processes[index])
                processes[index] = _start_worker()
                reason = f"its process died (exit code {code}); run again to continue"
                message = {"event": "failed", "reason": reason}
            messages.put((job, message))


def _read_messages(
    process: subprocess.Popen[str], request: Mapping[str, Any]
) -> Iterator[dict[str, Any] | None]:
    """Yield the messages of a process about one job, up to its end; None if the process died."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            message = json.loads(line)
            yield message
            if message["event"] != "round":
                return
    except (OSError, ValueError):  # a broken pipe, or half a line
        pass
    yield None


def _start_worker() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "thalweg.engine.cell_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=worker_environment(),
        text=True,
    )


def _kill_worker(process: subprocess.Popen[str]) -> int:
    """Kill a process and return its exit code. Its run can be resumed from the last checkpoint."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # the last request was not read
                pipe.close()
    return process.wait()


@contextmanager
def _worker_processes(count: int) -> Iterator[tuple[list[subprocess.Popen[str]], threading.Event]]:
    """Start processes, and end them in any case; the event is set before they are ended."""
    processes, closing = [_start_worker() for _ in range(count)], threading.Event()
    try:
        yield processes, closing
    finally:
        closing.set()
        for process in processes:
            _kill_worker(process)
