"""What a worker process does: wait for an order, compute, answer; leave when nobody is there any more."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any, NamedTuple

import torch

from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.views import View
from thalweg.data.augment import Augmentation
from thalweg.data.base import Dataset
from thalweg.engine.gather import Gather, Part
from thalweg.engine.shared import Layout, SharedMemory
from thalweg.engine.stacked import StackedTrainer, StackTask
from thalweg.local import Mirror, Objective, Sgd
from thalweg.nets import Net


class Place(NamedTuple):
    """An array in shared memory."""

    number: int  # of the memory
    layout: Layout


class MapMemory(NamedTuple):
    """A piece of shared memory, known by a number from here on. Followed by its handle. No answer."""

    number: int
    num_bytes: int


class ForgetMemory(NamedTuple):
    """Nobody needs this piece any more. No answer."""

    number: int


class Hire(NamedTuple):
    """Everything that stays the same. No answer."""

    net: Net
    objective: Objective
    sgd: Sgd
    arrays: dict[str, Place]  # x, y, x_test, y_test
    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_codes: int
    mirror: Mirror
    augment: Augmentation | None
    views: tuple[View, ...] = ()


class Train(NamedTuple):
    """Train one stack; its deltas go to some rows of a piece of shared memory. Answer: losses."""

    task: StackTask
    bank: Place  # (M, P)
    deltas: Place  # (K_total, P)
    first: int  # the first of its rows


class Predict(NamedTuple):
    """Answer: predicted labels and losses of the model on some rows."""

    bank: Place  # (1, P)
    part: Part
    rows: Ints


class Score(NamedTuple):
    """Answer: logarithms of the probabilities that the model gives the classes of some rows."""

    bank: Place  # (1, P)
    part: Part
    rows: Ints


class Failure(NamedTuple):
    """The answer when an order could not be carried out."""

    error: Exception
    story: str  # the traceback


def main(handle: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    os.dup2(2, 1)  # what an objective prints must not end up among the results of a command
    torch.set_num_threads(1)
    # The end of the pipe: the run is over, or its process is gone. Nothing here is worth keeping.
    with contextlib.suppress(EOFError, ConnectionError):
        serve(Connection(handle))


def serve(connection: Connection) -> None:
    """Carry out orders until the other side hangs up."""
    memories: dict[int, SharedMemory] = {}
    trainer: StackedTrainer | None = None
    trouble: Failure | None = None  # why there is no working here; told when work is asked for
    while True:
        order = None
        try:
            order = connection.recv()
            match order:
                case MapMemory(number, num_bytes):
                    memories[number] = SharedMemory(recv_handle(connection), num_bytes)
                case ForgetMemory(number):
                    del memories[number]
                case Hire():
                    trainer = _trainer(order, memories)
                case Train() | Predict() | Score():
                    connection.send(trouble or _answer(order, trainer, memories))
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            failure = Failure(_portable(error), traceback.format_exc())
            if isinstance(order, Train | Predict | Score) or (
                order is None and trainer is not None
            ):
                connection.send(failure)
            else:
                trouble = failure


def _trainer(hire: Hire, memories: dict[int, SharedMemory]) -> StackedTrainer:
    arrays: dict[str, Any] = {
        name: memories[number].array(layout) for name, (number, layout) in hire.arrays.items()
    }
    data = Dataset(
        name="shared",
        num_classes=hire.num_classes,
        mean=hire.mean,
        std=hire.std,
        num_codes=hire.num_codes,
        views=hire.views,
        **arrays,
    )
    return StackedTrainer(
        hire.net, hire.objective, hire.sgd, Gather(data), hire.mirror, hire.augment
    )


def _answer(
    order: Train | Predict | Score,
    trainer: StackedTrainer | None,
    memories: dict[int, SharedMemory],
) -> Floats | Floats32 | tuple[Ints, Floats32]:
    assert trainer is not None  # hired before anything else
    bank = memories[order.bank.number].array(order.bank.layout)
    if isinstance(order, Predict):
        return trainer.predict(bank[0], order.part, order.rows)
    if isinstance(order, Score):
        return trainer.scores(bank[0], order.part, order.rows)
    deltas = memories[order.deltas.number].array(order.deltas.layout)
    mine = deltas[order.first : order.first + len(order.task.models)]
    return trainer.train_one(bank, order.task, mine)


def _portable(error: Exception) -> Exception:
    """The error itself if it survives the journey, else one that says the same."""
    with contextlib.suppress(Exception):
        copy = pickle.loads(pickle.dumps(error))  # bytes of our own making, never received
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")
