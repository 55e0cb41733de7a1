"""Data, tasks and the reference result for tests of the native kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from thalweg.core.types import Floats32
from thalweg.data.base import Dataset
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import StackTask
from thalweg.federation import MiniBatch
from thalweg.local import LocalTraining, Objective, TaskLoss
from thalweg.losses import CrossEntropy, Loss, MeanSquaredError
from thalweg.native.library import find_kernel
from thalweg.native.trainer import NativeTrainer, find_parts
from thalweg.nets import Net

# The difference of two kernels, or of a kernel and PyTorch: the norm of the difference of two
# updates of a round, relative to the norm of the update. Both are about 1e-5 from the update in
# double precision.
TOLERANCE = 1e-4

KERNEL = find_kernel()
needs_kernel = pytest.mark.skipif(isinstance(KERNEL, str), reason=str(KERNEL))

SGD = LocalTraining(lr=0.05, momentum=0.9, weight_decay=0.01, batch_size=8, steps=1)
PLAIN_SGD = LocalTraining(lr=0.05, batch_size=8, steps=1)


def make_images(shape: tuple[int, int, int], num: int = 60, seed: int = 0, **more: Any) -> Dataset:
    """Return random images of a shape (channels, height, width) with 3 classes."""
    channels, height, width = shape
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (num, height, width, channels), dtype=np.uint8)
    y = rng.integers(0, 3, num)
    mean, std = (0.5, 0.4, 0.3)[:channels], (0.3, 0.25, 0.2)[:channels]
    return Dataset("toy", x, y, x[:9], y[:9], 3, mean, std, **more)


def make_table(features: int, outputs: int = 0, num: int = 60, seed: int = 0) -> Dataset:
    """Return a table with 3 classes, or with `outputs` numbers to predict."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num, features), dtype=np.float32)
    if outputs == 0:
        y = rng.integers(0, 3, num)
        return Dataset("toy", x, y, x[:9], y[:9], 3)
    shape = (num,) if outputs == 1 else (num, outputs)
    numbers = rng.standard_normal(shape, dtype=np.float32)
    return Dataset("toy", x, numbers, x[:9], numbers[:9], 0)


def make_texts(
    words: int = 6, num_codes: int = 40, num: int = 60, seed: int = 0, dtype: Any = np.uint8
) -> Dataset:
    """Return random texts with 3 classes; code 0 is padding, and some texts have no words."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, num_codes, (num, words)).astype(dtype)
    x[::7, words // 2 :] = 0
    x[5] = 0
    y = rng.integers(0, 3, num)
    return Dataset("toy", x, y, x[:9], y[:9], 3, num_codes=num_codes)


def make_task(
    sizes: Sequence[Sequence[int]],  # of the mini-batches of each client; 0: no step
    seed: int = 1,
    num_rows: int = 60,
    num_models: int = 1,
    is_weighted: bool = False,
    lr_scales: Sequence[float] | None = None,
    extra_width: int = 0,
) -> StackTask:
    """Return mini-batches of K clients, with any rows as padding."""
    rng = np.random.default_rng(seed)
    num_steps = max(map(len, sizes))
    width = max([1, *(size for mine in sizes for size in mine)]) + extra_width
    shape = (num_steps, len(sizes), width)
    items = np.full(shape, 3, dtype=np.int32)
    weights = np.zeros(shape, dtype=np.float32)
    live, lengths = np.zeros(shape[:2], dtype=bool), np.zeros(shape[:2], dtype=np.int64)
    models = rng.integers(0, num_models, len(sizes))
    for k, mine in enumerate(sizes):
        for s, size in enumerate(mine):
            items[s, k, :size] = rng.integers(0, num_rows, size)
            shares = rng.uniform(0.1, 1, size) if is_weighted else np.ones(size)
            weights[s, k, :size] = shares / max(shares.sum(), 1)
            live[s, k], lengths[s, k] = size > 0, size
    scales = None if lr_scales is None else np.array(lr_scales, dtype=np.float32)
    return StackTask(models, items, weights, live, scales, None, lengths)


def make_bank(net: Net, num_models: int = 1) -> Floats32:
    return np.stack([net.init(np.random.default_rng(m)) for m in range(num_models)])


def choose_loss(data: Dataset) -> Loss:
    return MeanSquaredError() if data.task == "regression" else CrossEntropy()


def make_native(
    net: Net,
    data: Dataset,
    local: LocalTraining = SGD,
    num_threads: int = 1,
    objective: Objective = TaskLoss(),  # noqa: B008  frozen
) -> NativeTrainer:
    parts = find_parts(net, data, choose_loss(data))
    assert not isinstance(parts, str), parts
    return NativeTrainer(parts, objective, local, data, num_threads)


def train_reference(
    net: Net,
    data: Dataset,
    local: LocalTraining,
    bank: Floats32,
    task: StackTask,
    objective: Objective = TaskLoss(),  # noqa: B008  frozen
    memo: Mapping[str, Floats32] | None = None,  # (K, P) each
) -> tuple[Floats32, list[float]]:
    """Return updates (K, P) and mean losses (K,) of the reference engine."""
    trainer = SingleTrainer(net, objective, local, data, loss=choose_loss(data))
    deltas, losses = [], []
    for k, model in enumerate(task.models):
        training = trainer.begin(bank[model])
        scale = 1.0 if task.lr_scales is None else float(task.lr_scales[k])
        for s in np.flatnonzero(task.live[:, k]):
            size = int(task.sizes[s, k])
            batch = MiniBatch(task.items[s, k, :size].astype(np.int64), task.weights[s, k, :size])
            mine = {name: rows[k] for name, rows in (memo or {}).items()}
            training.step(batch, mine, scale)
        deltas.append(training.delta)
        losses.append(training.mean_loss)
    return np.stack(deltas), losses


def assert_close(deltas: Floats32, expected: Floats32) -> None:
    """Check that updates of clients (K, P) agree within the stated tolerance."""
    for k, (ours, right) in enumerate(zip(deltas, expected, strict=True)):
        error = np.linalg.norm(ours - right)
        assert error <= TOLERANCE * np.linalg.norm(right), f"client {k}"


def assert_agrees(
    net: Net,
    data: Dataset,
    task: StackTask,
    local: LocalTraining = SGD,
    num_models: int = 1,
) -> None:
    """Check updates and losses of all clients of a task against the reference engine."""
    bank = make_bank(net, num_models)
    deltas, losses = make_native(net, data, local).train(bank, [task])
    expected, expected_losses = train_reference(net, data, local, bank, task)
    assert_close(deltas, expected)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5, atol=1e-6)
