"""Many runs side by side: each cell of a table is a run in a folder of its own.

Cells are handed to long-lived processes of ours, one per core. What is finished is not run again;
what was interrupted goes on where it stopped; a cell that fails says why, and the others go on.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thalweg.core.errors import RunError, ThalwegError
from thalweg.engine.any_plan import AnyPlan, read_any_plan
from thalweg.engine.baseline import carry_out
from thalweg.engine.folder import RunFolder
from thalweg.engine.loop import Progress
from thalweg.engine.machine import cores, worker_environment
from thalweg.engine.plan import differences, plan_to_toml


@dataclass(frozen=True)
class CellJob:
    """A cell to run: the plan of a recipe or a baseline, its folder, and the name under which its row goes."""

    recipe: str
    plan: AnyPlan
    folder: Path
    command: str


@dataclass(frozen=True)
class CellNews:
    """What a watcher is told: a round of a cell, or its end (`row` is then None)."""

    job: CellJob
    rounds_done: int
    row: Mapping[str, Any] | None
    failure: str | None = None  # why it ended before it was done


Watch = Callable[[CellNews], None]


def run_cells(
    jobs: Sequence[CellJob],
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
    watch: Watch | None = None,
) -> dict[Path, str]:
    """Run what is missing. Returns the folders of the cells that failed, with the reason."""
    todo = [job for job in jobs if not is_done(job)]
    workers = min(workers or cores(), len(todo))
    # A policy defined in the user's own script cannot be imported by another process.
    stays_here = any('"__main__:' in plan_to_toml(job.plan) for job in todo)
    if workers <= 1 or stays_here:
        return _run_here(todo, data_dir, watch)
    return _run_in_workers(todo, workers, data_dir, watch)


def is_done(job: CellJob) -> bool:
    """Is this very plan finished in its folder? Another plan there is an error, not a result."""
    if not (job.folder / "plan.toml").exists():
        return False
    if changes := differences(read_any_plan(job.folder), job.plan):
        raise RunError(
            f"{job.folder} holds a run with another configuration; choose another --out:\n  "
            + "\n  ".join(changes)
        )
    return RunFolder(job.folder).is_finished(job.plan.scenario.rounds)


def _run_here(
    jobs: Sequence[CellJob], data_dir: Path | None, watch: Watch | None
) -> dict[Path, str]:
    failures: dict[Path, str] = {}
    for job in jobs:

        def tell(progress: Progress, job: CellJob = job) -> None:
            if watch is not None:
                watch(CellNews(job, progress.rounds_done, progress.row))

        with suppress(RunError):  # a folder that cannot be written to fails by itself
            RunFolder(job.folder).write_failure(None)
        failure = None
        try:
            carry_out(
                job.plan,
                out=job.folder,
                data_dir=data_dir,
                watch=tell,
                command=job.command,
            )
        except ThalwegError as error:
            failure = str(error)
        _end_of(job, failure, failures, watch)
    return failures


def _end_of(
    job: CellJob, failure: str | None, failures: dict[Path, str], watch: Watch | None
) -> None:
    """Note how a cell ended, also in its folder: a later look must find the reason."""
    if failure is not None:
        failures[job.folder] = failure
        with suppress(RunError):  # a folder that cannot be written to may be what failed
            RunFolder(job.folder).write_failure(failure)
    if watch is not None:
        watch(CellNews(job, job.plan.scenario.rounds, None, failure))


def _run_in_workers(
    jobs: Sequence[CellJob], workers: int, data_dir: Path | None, watch: Watch | None
) -> dict[Path, str]:
    """Threads hand jobs to processes and put their news in one queue, which is read here."""
    todo: queue.SimpleQueue[CellJob] = queue.SimpleQueue()
    for job in jobs:
        todo.put(job)
    news: queue.SimpleQueue[tuple[CellJob, dict[str, Any]]] = queue.SimpleQueue()
    failures: dict[Path, str] = {}
    with _processes(workers) as (processes, closing):
        for place in range(workers):
            serve = threading.Thread(
                target=_serve, args=(processes, place, todo, news, data_dir, closing), daemon=True
            )
            serve.start()
        unfinished = len(jobs)
        while unfinished:
            job, said = news.get()
            if said["event"] == "round":
                if watch is not None:
                    watch(CellNews(job, said["row"]["round"], said["row"]))
                continue
            unfinished -= 1
            _end_of(job, said.get("reason"), failures, watch)
    return failures


def _serve(
    processes: list[subprocess.Popen[str]],
    place: int,
    todo: queue.SimpleQueue[CellJob],
    news: queue.SimpleQueue[tuple[CellJob, dict[str, Any]]],
    data_dir: Path | None,
    closing: threading.Event,
) -> None:
    """Keep one process busy until no job is left or all is closing; replace it if it dies before."""
    while not closing.is_set():
        try:
            job = todo.get_nowait()
        except queue.Empty:
            return
        order = {
            "plan": plan_to_toml(job.plan),
            "out": str(job.folder),
            "data_dir": None if data_dir is None else str(data_dir),
            "command": job.command,
        }
        with suppress(RunError):  # a folder that cannot be written to fails by itself
            RunFolder(job.folder).write_failure(None)
        for said in _answers(processes[place], order):
            if said is None:
                if closing.is_set():  # it did not die, it was ended
                    return
                code = _end(processes[place])
                processes[place] = _start()
                reason = f"its process died (exit code {code}); run again to continue"
                said = {"event": "failed", "reason": reason}
            news.put((job, said))


def _answers(
    process: subprocess.Popen[str], order: Mapping[str, Any]
) -> Iterator[dict[str, Any] | None]:
    """What a process says about one order, up to its end; None if the process is gone."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            said = json.loads(line)
            yield said
            if said["event"] != "round":
                return
    except (OSError, ValueError):  # a broken pipe, or half a line
        pass
    yield None


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "thalweg.engine.cell_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=worker_environment(),
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> int:
    """Killing is safe: a run continues from its last whole round."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # an order that never got through
                pipe.close()
    return process.wait()


@contextmanager
def _processes(count: int) -> Iterator[tuple[list[subprocess.Popen[str]], threading.Event]]:
    """Processes, and whether they are about to be ended, as they are also by Ctrl-C."""
    processes, closing = [_start() for _ in range(count)], threading.Event()
    try:
        yield processes, closing
    finally:
        closing.set()
        for process in processes:
            _end(process)
