"""Run the cells of a table as tasks of a Ray cluster: each cell is a run in a shared folder."""

from __future__ import annotations

import os
import platform
import queue
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import thalweg
from thalweg.core.errors import RunError, ThalwegError
from thalweg.data import Dataset
from thalweg.engine.cell_worker import CellMessage, execute_request
from thalweg.engine.cells import (
    CellCallback,
    CellEvent,
    CellJob,
    is_done,
    make_request,
    record_end,
)
from thalweg.engine.ray.cluster import RayCluster, RayConnection
from thalweg.engine.ray.schedule import MAX_ATTEMPTS, first_line, warn
from thalweg.engine.run_folder import RunFolder
from thalweg.native.library import VARIABLE, get_kernel_name

_loaded: dict[str, Dataset] = {}  # of a process of the cluster, which runs several cells


def run_cells_on_ray(
    jobs: Sequence[CellJob],
    cluster: RayCluster,
    data_dir: Path | None,
    watch: CellCallback | None,
    track: Sequence[str],
    device: str,
) -> dict[Path, str]:
    """Run cells. Return the folders of those that failed, with the reasons.

    A cell whose node is lost is continued on another node, from its last checkpoint.
    """
    connection = RayConnection(cluster)
    try:
        return _CellSchedule(connection, jobs, data_dir, watch, track, device).run()
    finally:
        connection.close()


class _CellSchedule:
    def __init__(
        self,
        connection: RayConnection,
        jobs: Sequence[CellJob],
        data_dir: Path | None,
        watch: CellCallback | None,
        track: Sequence[str],
        device: str,
    ) -> None:
        self._ray, self._num_workers = connection.ray, connection.num_workers
        self._watch, self._track, self._device = watch, track, device
        self._data_dir = None if data_dir is None else data_dir.absolute()
        self._remote = self._ray.remote(stream_cell).options(
            num_cpus=1,
            num_gpus=connection.cluster.num_gpus,
            num_returns="streaming",
            max_retries=0,  # a cell is continued by another task
            scheduling_strategy="SPREAD",
        )
        self._todo = deque((job, 1) for job in jobs)  # with the number of the attempt
        self._busy: dict[Any, tuple[CellJob, int]] = {}
        self._failures: dict[Path, str] = {}

    def run(self) -> dict[Path, str]:
        while self._todo or self._busy:
            while self._todo and len(self._busy) < self._num_workers:
                self._send(*self._todo.popleft())
            ready, _ = self._ray.wait(list(self._busy), num_returns=1, fetch_local=False)
            for stream in ready:
                self._receive(stream)
        return self._failures

    def _send(self, job: CellJob, attempt: int) -> None:
        with suppress(RunError):  # running the cell will report a read-only folder
            RunFolder(job.folder).write_failure(None)
        elsewhere = replace(job, folder=job.folder.absolute())
        request = make_request(elsewhere, self._data_dir, self._track, self._device)
        self._busy[self._remote.remote(request, describe_machine())] = job, attempt

    def _receive(self, stream: Any) -> None:
        job, attempt = self._busy[stream]
        errors = self._ray.exceptions
        try:
            message: CellMessage = self._ray.get(next(stream))
        except errors.RayTaskError as error:
            message = {"event": "failed", "reason": first_line(error.cause or error)}
        except (errors.RayError, StopIteration) as error:
            del self._busy[stream]
            self._repeat(job, attempt, first_line(error) or type(error).__name__)
            return
        if message["event"] == "round":
            if self._watch is not None:
                self._watch(CellEvent(job, message["row"]["round"], message["row"]))
            return
        del self._busy[stream]
        reason = message.get("reason")
        record_end(job, reason or _find_missing(job), self._failures, self._watch)

    def _repeat(self, job: CellJob, attempt: int, reason: str) -> None:
        if attempt < MAX_ATTEMPTS:
            warn(f"{job.recipe}: its process is lost ({reason}). Another node continues the run.")
            self._todo.append((job, attempt + 1))
        else:
            lost = f"its process was lost {MAX_ATTEMPTS} times ({reason}); run again to continue"
            record_end(job, lost, self._failures, self._watch)


def _find_missing(job: CellJob) -> str | None:
    """Return why the results of a finished cell cannot be read here; None: they can."""
    try:
        found = is_done(job)
    except ThalwegError as error:
        return str(error)
    if found:
        return None
    return (
        f"it has finished, but {job.folder} has no results on this machine; expected a folder that "
        "all nodes share (--out)"
    )


def describe_machine() -> dict[str, str]:
    """Return what determines the bits of a run, besides the plan."""
    kernel = get_kernel_name()
    return {
        "thalweg": thalweg.__version__,
        "torch": version("torch"),
        "processor": platform.machine(),
        "kernel": kernel,
    }


def stream_cell(request: dict[str, Any], wanted: dict[str, str]) -> Iterator[CellMessage]:
    """Run a cell in a process of the cluster; yield its messages. `wanted` is the driver's."""
    if wanted["kernel"].startswith("native-"):
        os.environ[VARIABLE] = wanted["kernel"].removeprefix("native-")
    try:
        found = describe_machine()
    except ThalwegError as error:  # this machine does not have the kernel
        found = {"kernel": str(error)}
    differences = [
        f"{name} {found.get(name)} instead of {value}"
        for name, value in wanted.items()
        if found.get(name, value) != value
    ]
    if differences:
        reason = f"the node {platform.node()} has {', '.join(differences)}, so results would differ"
        yield {"event": "failed", "reason": reason}
        return
    messages: queue.SimpleQueue[CellMessage] = queue.SimpleQueue()
    threading.Thread(
        target=execute_request, args=(request, _loaded, messages.put), daemon=True
    ).start()
    while True:
        message = messages.get()
        yield message
        if message["event"] != "round":
            return
