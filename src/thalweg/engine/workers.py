"""A pool of worker processes: long-lived, one thread each, fed through pipes and shared memory.

Our own processes rather than `multiprocessing`, which would import the user's script again in every
worker. They receive the net, the objective and the data once, then small orders; models and updates
travel through shared memory. When this process ends, however it ends, they read the end of their
pipe and leave.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import types
import weakref
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

import numpy as np

from thalweg.core.errors import ThalwegError, require
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.augment import Augmentation
from thalweg.data.base import Dataset, Part
from thalweg.engine.gather import Gather
from thalweg.engine.processes import Layout, SharedMemory, count_cores, worker_environment
from thalweg.engine.stacked import PREDICT_BATCH, StackedTrainer, StackTask, Trainer
from thalweg.engine.worker_main import (
    Failure,
    ForgetMemory,
    MapMemory,
    Predict,
    Score,
    SharedArray,
    Train,
    WorkerSetup,
)
from thalweg.local import Euclidean, Geometry, Objective, Sgd
from thalweg.nets import Net

WorkerRequest = Train | Predict | Score

_BOOTSTRAP = """
import signal, sys, json
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = json.loads(sys.argv[2])
from thalweg.engine.worker_main import main
main(int(sys.argv[1]))
"""


class WorkerDied(ThalwegError):
    """A worker process ended before its work did."""


def can_send_to_worker(*parts: object) -> bool:
    """Can another process be sent these objects, and import what they are made of?

    Not if their classes live in the user's script or notebook, or in a file that was loaded by path.

    >>> from thalweg.local import CrossEntropy
    >>> can_send_to_worker(CrossEntropy()), can_send_to_worker(lambda: None)
    (True, False)
    """
    collector = _ModuleCollector(io.BytesIO())
    try:
        collector.dump(parts)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return all(_can_import(module) for module in collector.modules)


class WorkerPool:
    """A trainer that spreads tasks over processes; what is computed does not depend on how many.

    Mutates nothing it is given. The deltas it returns are memory shared with the workers, which is used
    again once nobody holds the array, or a view of it, any more.
    """

    def __init__(
        self,
        net: Net,
        objective: Objective,
        sgd: Sgd,
        data: Dataset,
        num_workers: int,
        geometry: Geometry = Euclidean(),  # noqa: B008  frozen
        augment: Augmentation | None = None,
    ) -> None:
        require(num_workers >= 1, f"a pool needs at least one worker, got {num_workers}.")
        self._num_samples = {"train": data.num_samples("train"), "test": data.num_samples("test")}
        self._num_classes = data.num_classes
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._memories: dict[int, SharedMemory] = {}
        self._free: set[int] = set()  # numbers of the memories nobody looks at
        self._created = 0
        self._bank: int | None = None  # number of the memory for models
        # Called by `close`, and also when the pool is forgotten or the interpreter ends.
        self._shut_down = weakref.finalize(
            self, _shut_down, self._processes, self._connections, os.getpid()
        )
        try:
            for _ in range(num_workers):
                self._start_worker()
            self._send_setup(net, objective, sgd, data, geometry, augment)
        except BaseException:
            self.close()
            raise

    def train(self, bank: Floats32, tasks: Sequence[StackTask]) -> tuple[Floats32, Floats]:
        self._require_open()
        ends = np.cumsum([0, *(len(task.models) for task in tasks)])
        layout = Layout((int(ends[-1]), bank.shape[1]), "<f4")
        number = self._acquire_memory(layout.num_bytes)
        deltas = self._memories[number].array(layout)
        weakref.finalize(deltas, self._free.add, number).atexit = False
        models = self._publish(bank)
        losses = self._run_requests(
            [
                Train(task, models, SharedArray(number, layout), int(first))
                for task, first in zip(tasks, ends, strict=False)
            ]
        )
        return deltas, np.concatenate([np.empty(0), *losses])

    def predict(
        self, params: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Ints, Floats32]:
        self._require_open()
        rows = np.arange(self._num_samples[part]) if rows is None else rows
        model = self._publish(params[None])
        answers = self._run_requests(
            [Predict(model, part, mine) for mine in self._split_rows(rows)]
        )
        labels = [np.empty(0, dtype=np.int64), *(labels for labels, _ in answers)]
        losses = [np.empty(0, dtype=np.float32), *(losses for _, losses in answers)]
        return np.concatenate(labels), np.concatenate(losses)

    def scores(self, params: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        self._require_open()
        rows = np.arange(self._num_samples[part]) if rows is None else rows
        model = self._publish(params[None])
        answers = self._run_requests([Score(model, part, mine) for mine in self._split_rows(rows)])
        return np.concatenate([np.empty((0, self._num_classes), dtype=np.float32), *answers])

    def _split_rows(self, rows: Ints) -> list[Ints]:
        """Whole batches, so that their boundaries do not depend on who gets which share."""
        share = -(-len(rows) // (PREDICT_BATCH * 2 * len(self._processes))) * PREDICT_BATCH
        return [rows[first : first + share] for first in range(0, len(rows), max(share, 1))]

    def close(self) -> None:
        self._shut_down()

    # --- processes ---

    def _require_open(self) -> None:
        if not self._shut_down.alive:
            raise WorkerDied("this pool of workers is closed.")

    def _start_worker(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            handle = theirs.fileno()
            path = json.dumps([str(place) for place in sys.path])
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, str(handle), path],
                pass_fds=[handle],
                stdin=subprocess.DEVNULL,
                env=worker_environment(),
            )
        self._processes.append(process)
        self._connections.append(Connection(ours.detach()))

    def _send_setup(
        self,
        net: Net,
        objective: Objective,
        sgd: Sgd,
        data: Dataset,
        geometry: Geometry,
        augment: Augmentation | None,
    ) -> None:
        arrays = {}
        for name in ("x", "y", "x_test", "y_test"):
            memory, layout = SharedMemory.from_array(getattr(data, name))
            arrays[name] = SharedArray(self._share_memory(memory), layout)
            del self._memories[arrays[name].number]  # theirs alone: we have the original
        setup = WorkerSetup(
            net,
            objective,
            sgd,
            arrays,
            data.num_classes,
            data.mean,
            data.std,
            data.num_codes,
            geometry,
            augment,
            data.views,
        )
        for place in range(len(self._processes)):
            self._send(place, setup)

    def _send(self, place: int, request: object, memory: SharedMemory | None = None) -> None:
        try:
            self._connections[place].send(request)
            if memory is not None:
                memory.send(self._connections[place], self._processes[place].pid)
        except OSError as error:
            raise self._make_died_error(place) from error
        except BaseException:
            self.close()  # half an order may be in the pipe
            raise

    def _run_requests(self, requests: Sequence[WorkerRequest]) -> list[Any]:
        """Answers in the order of the orders; whoever is free takes the next one."""
        answers: list[Any] = [None] * len(requests)
        todo = deque(range(len(requests)))
        idle = list(range(len(self._processes)))[::-1]
        busy: dict[Connection, tuple[int, int]] = {}  # whose, which order
        failed: dict[int, Failure] = {}
        try:
            while busy or (todo and not failed):
                while todo and idle and not failed:
                    place, which = idle.pop(), todo.popleft()
                    self._send(place, requests[which])
                    busy[self._connections[place]] = place, which
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    place, which = busy.pop(connection)
                    try:
                        answer = connection.recv()
                    except (EOFError, OSError) as error:
                        raise self._make_died_error(place) from error
                    idle.append(place)
                    if isinstance(answer, Failure):
                        failed[which] = answer
                    else:
                        answers[which] = answer
        except BaseException:
            self.close()  # somebody may still be computing: nothing can be relied on any more
            raise
        if failed:
            failure = failed[min(failed)]
            failure.error.add_note(f"In a worker process:\n{failure.traceback_text}")
            raise failure.error
        return answers

    def _make_died_error(self, place: int) -> WorkerDied:
        """What there is to say about a worker whose pipe is broken. Ends the others, too."""
        try:
            code = self._processes[place].wait(timeout=5)
        except subprocess.TimeoutExpired:
            how = "hung up without ending"
        else:
            how = f"ended with exit code {code}; see its message above"
            if code < 0:
                how = f"was killed by {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                how += " (has the machine run out of memory?)"
        self.close()
        return WorkerDied(
            f"worker {place + 1} of {len(self._processes)} {how}. "
            "A run in a folder can be continued with --resume, if need be with fewer workers."
        )

    # --- shared memory ---

    def _publish(self, bank: Floats32) -> SharedArray:
        """Put models where the workers can read them."""
        layout = Layout(bank.shape, "<f4")
        if self._bank is None or self._memories[self._bank].num_bytes < layout.num_bytes:
            if self._bank is not None:
                self._free.add(self._bank)
            self._bank = self._acquire_memory(layout.num_bytes)
        self._memories[self._bank].array(layout)[...] = bank
        return SharedArray(self._bank, layout)

    def _acquire_memory(self, num_bytes: int) -> int:
        """The number of a piece of shared memory that is large enough and that nobody looks at."""
        fitting = [n for n in self._free if self._memories[n].num_bytes >= num_bytes]
        if fitting:
            number = min(fitting)
            self._free.remove(number)
            return number
        for number in sorted(self._free):  # too small: cohorts have grown
            self._free.remove(number)
            del self._memories[number]
            for place in range(len(self._processes)):
                self._send(place, ForgetMemory(number))
        # Twice what is needed, because cohorts vary; pages nobody writes to cost nothing.
        return self._share_memory(SharedMemory.create(2 * num_bytes))

    def _share_memory(self, memory: SharedMemory) -> int:
        """Let all workers know a piece of memory, by a number."""
        number, self._created = self._created, self._created + 1
        self._memories[number] = memory
        for place in range(len(self._processes)):
            self._send(place, MapMemory(number, memory.num_bytes), memory)
        return number


def make_trainer(
    net: Net,
    objective: Objective,
    sgd: Sgd,
    data: Dataset,
    workers: int | Literal["auto"] = "auto",
    geometry: Geometry = Euclidean(),  # noqa: B008  frozen
    augment: Augmentation | None = None,
) -> Trainer:
    """In this process for one worker, else a pool.

    ``"auto"`` is one worker per core if the work is worth a pool (starting one takes a second or two)
    and can be sent to other processes. The choice never changes a bit of the result.
    """
    if workers == "auto" and not _can_share():
        workers = 1
    workers = count_workers(workers, net, sgd)
    parts = (net, objective, sgd, geometry, augment, data.views)
    if workers == 1 or not _can_share() or not can_send_to_worker(*parts):
        return StackedTrainer(net, objective, sgd, Gather(data), geometry, augment)
    return WorkerPool(net, objective, sgd, data, workers, geometry, augment)


def count_workers(workers: int | Literal["auto"], net: Net, sgd: Sgd) -> int:
    """So many as are asked for; "auto": one per core if there is enough to compute, else one."""
    if workers == "auto":
        return count_cores() if _is_worth_a_pool(net, sgd) else 1
    require(workers >= 1, f"workers must be at least 1, got {workers}.")
    return workers


def _is_worth_a_pool(net: Net, sgd: Sgd) -> bool:
    """Does a step take more than some tenths of a millisecond?"""
    per_sample = sum(
        layer.multiply_adds(shape) for layer, shape in zip(net.layers, net.shapes, strict=False)
    )
    return per_sample * sgd.batch_size > 2_000_000


def _can_share() -> bool:
    """Handles of nameless memory can be sent from process to process everywhere but on Windows."""
    return hasattr(socket, "send_fds")


class _ModuleCollector(pickle.Pickler):
    """Notes the modules of all classes and functions on the way."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, types.FunctionType)):
            self.modules.add(obj.__module__)
        return NotImplemented


def _can_import(module: str) -> bool:
    """Would a fresh interpreter with our search path find this module?"""
    path: Sequence[str] | None = None
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        specs = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or name == "__main__":
            return False
        path = spec.submodule_search_locations
    return True


def _shut_down(
    processes: list[subprocess.Popen[bytes]], connections: list[Connection], owner: int
) -> None:
    if os.getpid() != owner:
        return  # a fork of the process that owns them
    for connection in connections:
        connection.close()
    for process in processes:
        process.kill()  # workers hold nothing that could be lost
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
