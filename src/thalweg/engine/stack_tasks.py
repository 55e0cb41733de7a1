"""Tasks of trainers: the mini-batches of a few clients, which are computed together.

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data.base import Part, Targets
from thalweg.nets import Net

# Samples per batch of a prediction: fewer use the vector units less, more exceed the cache.
PREDICT_BATCH = 256


class StackTask(NamedTuple):
    """The training of a few clients in one round, for one stacked computation."""

    models: Ints  # (K,) the row of the bank each client starts from
    items: npt.NDArray[np.int32]  # (S, K, B) rows of the training part; any valid row as padding
    weights: Floats32  # (S, K, B) sample weights; 0 for padding
    live: npt.NDArray[np.bool_]  # (S, K) False: the client takes no step
    lr_scales: Floats32 | None = None  # (K,) factors of the learning rate; None: all one
    noise: Ints | None = None  # (K,) seeds of dropout and augmentation; None: neither
    sizes: Ints | None = None  # (S, K) samples without padding; None: up to the last weight above 0


def split_task(task: StackTask, size: int) -> list[StackTask]:
    """Return a task in parts of at most `size` clients."""
    parts = []
    for first in range(0, len(task.models), size):
        mine = slice(first, first + size)
        parts.append(
            StackTask(
                models=task.models[mine],
                items=task.items[:, mine],
                weights=task.weights[:, mine],
                live=task.live[:, mine],
                lr_scales=None if task.lr_scales is None else task.lr_scales[mine],
                noise=None if task.noise is None else task.noise[mine],
                sizes=None if task.sizes is None else task.sizes[:, mine],
            )
        )
    return parts


@dataclass
class StackLimit:
    """How many clients fit the memory of a device; a trainer lowers it if they do not."""

    size: int


class Trainer(Protocol):
    """Computes the training and the predictions of a run."""

    def train(self, bank: Floats32, tasks: Sequence[StackTask]) -> tuple[Floats32, Floats]:
        """Return deltas (K, P) and mean losses (K,) of all tasks in order; nan without a step."""

    def predict(
        self, params: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]:
        """Return predictions and losses of a model on rows of a part; None: all.

        Predictions are labels in a classification, outputs in a regression.
        """

    def scores(self, params: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        """Return log probabilities of the classes (n, C) of a model on rows of a part.

        In a regression: the outputs (n, D). None: all rows.
        """

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]:
        """Return `predict` of models (M, P) on the same rows: (M, n), or (M, n, D), and (M, n).

        Samples are read once for all models. The bits are those of one model alone.
        """

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        """Return `scores` of models (M, P) on the same rows: (M, n, C)."""

    def close(self) -> None:
        """End processes and free memory."""


def stack_size(net: Net) -> int:
    """Return how many clients to compute together; 1 for nets that do not gain from stacking.

    Small layers do not use a processor fully, and stacking helps. Nets with a million
    multiplications per sample in convolutions do, and stacking only exceeds the cache.
    Otherwise: as many clients as fit half a megabyte of parameters, at least 4, at most 512.
    """
    work = sum(
        layer.multiply_adds(shape)
        for layer, shape in zip(net.layers, net.shapes, strict=False)
        if len(shape) > 1
    )
    if not net.can_stack or work > 1_000_000 or net.num_params > 2_000_000:
        return 1
    return min(max(4, (1 << 17) // net.num_params), 512)


def choose_stack_sizes(net: Net, num_jobs: int, limit: StackLimit | None = None) -> list[int]:
    """Return the sizes of the stacks of a cohort: balanced, and an even number for two workers.

    They depend on the net and the cohort, not on the number of workers, and so do the results.
    With the limit of a device: as few stacks as possible.

    >>> from thalweg.nets import Cnn, LeNet5
    >>> choose_stack_sizes(LeNet5().build((1, 28, 28), 10), num_jobs=7)
    [4, 3]
    >>> choose_stack_sizes(Cnn().build((3, 32, 32), 10), num_jobs=3)
    [1, 1, 1]
    >>> choose_stack_sizes(LeNet5().build((1, 28, 28), 10), num_jobs=7, limit=StackLimit(9))
    [7]
    """
    if num_jobs == 0:
        return []
    stacks = -(-num_jobs // (stack_size(net) if limit is None else limit.size))
    if limit is None:
        stacks = min(stacks + stacks % 2, num_jobs)
    return [num_jobs // stacks + (i < num_jobs % stacks) for i in range(stacks)]


def count_columns(weights: Floats32, live: npt.NDArray[np.bool_]) -> list[int]:
    """Return the number of columns of each step that are not padding for all clients."""
    if not weights.size:
        return [0] * len(live)
    used = ((weights != 0) & live[:, :, None]).any(axis=1)  # (S, B)
    last = used.shape[1] - used[:, ::-1].argmax(axis=1)  # 0 + B where nothing is used
    return [int(width) for width in last]
