"""The main loop of a worker process: read a request, compute, respond; end with its parent."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import traceback
import warnings
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import TYPE_CHECKING, NamedTuple

from thalweg.core.errors import format_warning
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.augment import Augmentation
from thalweg.data.base import Part, Targets
from thalweg.data.mapped import FilePart
from thalweg.engine.processes import Layout, SharedMemory
from thalweg.engine.shared_data import DataFacts
from thalweg.engine.stack_tasks import StackTask
from thalweg.local import Geometry, LocalTraining, Objective
from thalweg.losses import Loss
from thalweg.nets import Net

if TYPE_CHECKING:
    from thalweg.engine.stacked import StackedTrainer


class SharedArray(NamedTuple):
    """An array in shared memory."""

    number: int  # of the memory
    layout: Layout


class MapMemory(NamedTuple):
    """Map shared memory under a number. Its handle follows. No response."""

    number: int
    num_bytes: int


class ForgetMemory(NamedTuple):
    """Unmap shared memory. No response."""

    number: int


class WorkerSetup(NamedTuple):
    """Everything that does not change during a run. No response."""

    net: Net
    objective: Objective
    local: LocalTraining
    geometry: Geometry
    augment: Augmentation | None
    loss: Loss
    facts: DataFacts
    arrays: dict[str, SharedArray | FilePart]
    use_native: bool


class Train(NamedTuple):
    """Train one stack and write its deltas to shared memory. Answer: losses."""

    task: StackTask
    bank: SharedArray  # (M, P)
    deltas: SharedArray  # (K_total, P)
    first: int  # the first row of the deltas


class Predict(NamedTuple):
    """Predict rows of a part with all models. Answer: predictions and losses."""

    bank: SharedArray  # (M, P)
    part: Part
    rows: Ints


class Score(NamedTuple):
    """Predict rows of a part with all models. Answer: log probabilities of the classes."""

    bank: SharedArray  # (M, P)
    part: Part
    rows: Ints


class Failure(NamedTuple):
    """The response to a request that failed."""

    error: Exception
    traceback_text: str


def main(handle: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    warnings.formatwarning = format_warning
    os.dup2(2, 1)  # output of objectives must not mix with that of a command
    import torch

    torch.set_num_threads(1)
    # At the end of the pipe the run is over, or its process has ended.
    with contextlib.suppress(EOFError, ConnectionError):
        run_worker(Connection(handle))


def run_worker(connection: Connection) -> None:
    """Execute requests until the connection is closed."""
    memories: dict[int, SharedMemory] = {}
    trainer: StackedTrainer | None = None
    setup_failure: Failure | None = None  # sent as the response to the next request
    while True:
        request = None
        try:
            request = connection.recv()
            match request:
                case MapMemory(number, num_bytes):
                    memories[number] = SharedMemory(recv_handle(connection), num_bytes)
                case ForgetMemory(number):
                    del memories[number]
                case WorkerSetup():
                    trainer = _make_trainer(request, memories)
                case Train() | Predict() | Score():
                    connection.send(setup_failure or _execute(request, trainer, memories))
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            failure = Failure(_make_picklable(error), traceback.format_exc())
            if isinstance(request, Train | Predict | Score) or (
                request is None and trainer is not None
            ):
                connection.send(failure)
            else:
                setup_failure = failure


def _make_trainer(setup: WorkerSetup, memories: dict[int, SharedMemory]) -> StackedTrainer:
    from thalweg.engine.workers import make_stacked_trainer  # it imports this module

    arrays = {
        name: array.open()
        if isinstance(array, FilePart)
        else memories[array.number].array(array.layout)
        for name, array in setup.arrays.items()
    }
    return make_stacked_trainer(
        setup.net,
        setup.objective,
        setup.local,
        setup.facts.add_arrays(arrays),
        setup.geometry,
        setup.augment,
        setup.loss,
        setup.use_native,
    )


def _execute(
    request: Train | Predict | Score,
    trainer: StackedTrainer | None,
    memories: dict[int, SharedMemory],
) -> Floats | Floats32 | tuple[Targets, Floats32]:
    assert trainer is not None  # the setup is sent first
    bank = memories[request.bank.number].array(request.bank.layout)
    if isinstance(request, Predict):
        return trainer.predict_many(bank, request.part, request.rows)
    if isinstance(request, Score):
        return trainer.scores_many(bank, request.part, request.rows)
    deltas = memories[request.deltas.number].array(request.deltas.layout)
    mine = deltas[request.first : request.first + len(request.task.models)]
    return trainer.train_one(bank, request.task, mine)


def _make_picklable(error: Exception) -> Exception:
    """Return the error if it can be pickled, else a RuntimeError with the same text."""
    with contextlib.suppress(Exception):
        copy = pickle.loads(pickle.dumps(error))  # bytes of this process
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")
