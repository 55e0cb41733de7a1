"""A pool of worker processes: long-lived, one thread each, connected by pipes and shared memory.

`multiprocessing` would import the user's script again in every worker, so it is not used. Workers
receive the net, the objective and the data once, and then small requests; models and updates are in
shared memory. When this process ends, however it ends, the pipes are closed and the workers end
too.
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
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from thalweg.core.errors import ThalwegError, require
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.augment import Augmentation
from thalweg.data.base import Dataset, Part, Targets
from thalweg.data.mapped import FilePart
from thalweg.data.predictions import ModelPredictions
from thalweg.engine.processes import Layout, SharedMemory, count_cores, worker_environment
from thalweg.engine.shared_data import DataFacts, RowShares, list_arrays
from thalweg.engine.stack_tasks import StackTask, Trainer
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
from thalweg.local import Euclidean, Geometry, LocalTraining, Objective
from thalweg.losses import CrossEntropy, Loss
from thalweg.native.trainer import make_native_trainer
from thalweg.nets import Net

if TYPE_CHECKING:
    from thalweg.engine.stacked import StackedTrainer

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
    """Return whether these objects can be pickled and a worker can import their classes.

    It cannot if a class is defined in the user's script or notebook, or in a file loaded by path.

    >>> from thalweg.local import TaskLoss
    >>> can_send_to_worker(TaskLoss()), can_send_to_worker(lambda: None)
    (True, False)
    """
    collector = _ModuleCollector(io.BytesIO())
    try:
        collector.dump(parts)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return all(_can_import(module) for module in collector.modules)


class WorkerPool(ModelPredictions):
    """A trainer that distributes tasks to processes; results do not depend on their number.

    The deltas it returns are in memory shared with the workers, which is used again when the array
    and all views of it have been deleted.
    """

    def __init__(
        self,
        net: Net,
        objective: Objective,
        local: LocalTraining,
        data: Dataset,
        num_workers: int,
        geometry: Geometry = Euclidean(),  # noqa: B008  frozen
        augment: Augmentation | None = None,
        loss: Loss = CrossEntropy(),  # noqa: B008  frozen
        use_native: bool = False,
    ) -> None:
        require(num_workers >= 1, f"a pool needs at least one worker, got {num_workers}.")
        self._shares = RowShares.from_data(data)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._memories: dict[int, SharedMemory] = {}
        self._free: set[int] = set()  # numbers of the memories that are not in use
        self._created = 0
        self._bank: int | None = None  # number of the memory for models
        # Called by `close`, and also when the pool is deleted or the interpreter ends.
        self._shut_down = weakref.finalize(
            self, _shut_down, self._processes, self._connections, os.getpid()
        )
        try:
            for _ in range(num_workers):
                self._start_worker()
            self._send_setup(net, objective, local, data, geometry, augment, loss, use_native)
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

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]:
        self._require_open()
        bank, shares = self._publish(models), self._split_rows(part, rows)
        found = self._run_requests([Predict(bank, part, mine) for mine in shares])
        return self._shares.join_predictions(len(models), found)

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        self._require_open()
        bank, shares = self._publish(models), self._split_rows(part, rows)
        found = self._run_requests([Score(bank, part, mine) for mine in shares])
        return self._shares.join_scores(len(models), found)

    def _split_rows(self, part: Part, rows: Ints | None) -> list[Ints]:
        return self._shares.split(part, rows, len(self._processes))

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
            path = json.dumps([str(entry) for entry in sys.path])
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
        local: LocalTraining,
        data: Dataset,
        geometry: Geometry,
        augment: Augmentation | None,
        loss: Loss,
        use_native: bool,
    ) -> None:
        arrays: dict[str, SharedArray | FilePart] = {}
        for name, values in list_arrays(data).items():
            if isinstance(values, FilePart):
                arrays[name] = values  # each worker maps the file
                continue
            memory, layout = SharedMemory.from_array(values)
            number = self._share_memory(memory)
            arrays[name] = SharedArray(number, layout)
            del self._memories[number]  # used by the workers only
        facts = DataFacts.from_data(data)
        setup = WorkerSetup(
            net, objective, local, geometry, augment, loss, facts, arrays, use_native
        )
        for worker in range(len(self._processes)):
            self._send(worker, setup)

    def _send(self, worker: int, request: object, memory: SharedMemory | None = None) -> None:
        try:
            # `send` would pickle tensors as handles, which only child processes can open.
            self._connections[worker].send_bytes(pickle.dumps(request))
            if memory is not None:
                memory.send(self._connections[worker], self._processes[worker].pid)
        except OSError as error:
            raise self._make_died_error(worker) from error
        except BaseException:
            self.close()  # a part of the request may be in the pipe
            raise

    def _run_requests(self, requests: Sequence[WorkerRequest]) -> list[Any]:
        """Return the responses in the order of the requests; each idle worker gets the next one."""
        responses: list[Any] = [None] * len(requests)
        todo = deque(range(len(requests)))
        idle = list(range(len(self._processes)))[::-1]
        busy: dict[Connection, tuple[int, int]] = {}  # worker and request
        failed: dict[int, Failure] = {}
        try:
            while busy or (todo and not failed):
                while todo and idle and not failed:
                    worker, which = idle.pop(), todo.popleft()
                    self._send(worker, requests[which])
                    busy[self._connections[worker]] = worker, which
                for connection in wait(list(busy)):
                    assert isinstance(connection, Connection)
                    worker, which = busy.pop(connection)
                    try:
                        response = connection.recv()
                    except (EOFError, OSError) as error:
                        raise self._make_died_error(worker) from error
                    idle.append(worker)
                    if isinstance(response, Failure):
                        failed[which] = response
                    else:
                        responses[which] = response
        except BaseException:
            self.close()  # workers may still be computing
            raise
        if failed:
            failure = failed[min(failed)]
            failure.error.add_note(f"In a worker process:\n{failure.traceback_text}")
            raise failure.error
        return responses

    def _make_died_error(self, worker: int) -> WorkerDied:
        """Return the error for a worker that has ended, and close the pool."""
        try:
            code = self._processes[worker].wait(timeout=5)
        except subprocess.TimeoutExpired:
            how = "closed its connection without ending"
        else:
            how = f"ended with exit code {code}; see its message above"
            if code < 0:
                how = f"was killed by {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                how += " (has the machine run out of memory?)"
        self.close()
        return WorkerDied(
            f"worker {worker + 1} of {len(self._processes)} {how}. "
            "A run in a folder can be continued with --resume, if need be with fewer workers."
        )

    # --- shared memory ---

    def _publish(self, bank: Floats32) -> SharedArray:
        """Copy models to shared memory."""
        layout = Layout(bank.shape, "<f4")
        if self._bank is None or self._memories[self._bank].num_bytes < layout.num_bytes:
            if self._bank is not None:
                self._free.add(self._bank)
            self._bank = self._acquire_memory(layout.num_bytes)
        self._memories[self._bank].array(layout)[...] = bank
        return SharedArray(self._bank, layout)

    def _acquire_memory(self, num_bytes: int) -> int:
        """Return the number of shared memory that is large enough and not in use."""
        fitting = [n for n in self._free if self._memories[n].num_bytes >= num_bytes]
        if fitting:
            number = min(fitting)
            self._free.remove(number)
            return number
        for number in sorted(self._free):  # too small
            self._free.remove(number)
            del self._memories[number]
            for worker in range(len(self._processes)):
                self._send(worker, ForgetMemory(number))
        # Twice the size, because cohorts vary; unused pages cost nothing.
        return self._share_memory(SharedMemory.create(2 * num_bytes))

    def _share_memory(self, memory: SharedMemory) -> int:
        """Map shared memory in all workers and return its number."""
        number, self._created = self._created, self._created + 1
        self._memories[number] = memory
        for worker in range(len(self._processes)):
            self._send(worker, MapMemory(number, memory.num_bytes), memory)
        return number


def make_trainer(
    net: Net,
    objective: Objective,
    local: LocalTraining,
    data: Dataset,
    workers: int | Literal["auto"] = "auto",
    geometry: Geometry = Euclidean(),  # noqa: B008  frozen
    augment: Augmentation | None = None,
    loss: Loss = CrossEntropy(),  # noqa: B008  frozen
    use_native: bool = False,
) -> Trainer:
    """Return a trainer for the training and the predictions of a run.

    With `use_native`, the native kernel trains in threads of this process where it can. Else:
    a trainer in this process for one worker, or a pool of workers.

    ``"auto"`` means one worker per core if there is enough to compute (starting a pool takes a
    second or two) and the objects can be sent to other processes. Results do not depend on it.
    """
    if use_native:
        num_threads = count_cores() if workers == "auto" else workers
        native = make_native_trainer(
            net, objective, local, data, geometry, augment, loss, num_threads
        )
        if native is not None and native.can_train:
            return native
    from thalweg.nets.module_net import ModuleNet  # imports torch

    if workers == "auto" and not _can_share():
        workers = 1
    workers = count_workers(workers, net, local)
    parts = (net, objective, local, geometry, augment, data.views, loss)
    if workers > 1 and _can_share() and isinstance(net, ModuleNet) and not can_send_to_worker(net):
        warnings.warn(
            f"the model {net.spec.name} cannot be sent to worker processes, so it is trained in "
            "this process. Put its class into a file or package that can be imported to use "
            "several processes.",
            stacklevel=2,
        )
    if workers == 1 or not _can_share() or not can_send_to_worker(*parts):
        return make_stacked_trainer(
            net, objective, local, data, geometry, augment, loss, use_native
        )
    return WorkerPool(net, objective, local, data, workers, geometry, augment, loss, use_native)


def make_stacked_trainer(
    net: Net,
    objective: Objective,
    local: LocalTraining,
    data: Dataset,
    geometry: Geometry,
    augment: Augmentation | None,
    loss: Loss,
    use_native: bool,
) -> StackedTrainer:
    """Return a trainer in this process, which computes in C what it can."""
    from thalweg.engine.gather import Gather
    from thalweg.engine.stacked import StackedTrainer

    native = (
        make_native_trainer(net, objective, local, data, geometry, augment, loss)
        if use_native
        else None
    )
    return StackedTrainer(net, objective, local, Gather(data), geometry, augment, loss, native)


def count_workers(workers: int | Literal["auto"], net: Net, local: LocalTraining) -> int:
    """Return the number of workers; "auto": one per core if there is enough to compute, else 1."""
    if workers == "auto":
        return count_cores() if _is_worth_a_pool(net, local) else 1
    require(workers >= 1, f"workers must be at least 1, got {workers}.")
    return workers


def _is_worth_a_pool(net: Net, local: LocalTraining) -> bool:
    """Return whether a step takes more than some tenths of a millisecond."""
    per_sample = sum(
        layer.multiply_adds(shape) for layer, shape in zip(net.layers, net.shapes, strict=False)
    )
    return per_sample * local.batch_size > 2_000_000


def _can_share() -> bool:
    """Return whether file handles can be sent to other processes: everywhere but on Windows."""
    return hasattr(socket, "send_fds")


class _ModuleCollector(pickle.Pickler):
    """Collects the modules of all classes and functions that are pickled."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, types.FunctionType)):
            self.modules.add(obj.__module__)
        return NotImplemented


def _can_import(module: str) -> bool:
    """Return whether a new interpreter with the same search path can import a module."""
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
        return  # in a fork of the process that owns them
    for connection in connections:
        connection.close()
    for process in processes:
        process.kill()  # workers have no state that could be lost
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
