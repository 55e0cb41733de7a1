"""Rounding of optimizers: differences between the engines vanish in double precision."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from thalweg.data.base import Dataset
from thalweg.engine.fast import stack
from thalweg.engine.gather import Gather
from thalweg.engine.single import SingleTrainer
from thalweg.engine.stacked import StackedTrainer
from thalweg.federation import MiniBatch
from thalweg.local import LocalTraining, TaskLoss
from thalweg.local.optimizers import list_torch_optimizers
from thalweg.nets import Mlp

NUM_STEPS, NUM_CLIENTS, BATCH_SIZE = 60, 2, 8


@pytest.fixture
def _double_precision(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let both trainers compute in float64."""
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def train_both(local: LocalTraining, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Return the changes (K, P) of some clients, in one stack and one after the other."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (40, 3, 3, 1), dtype=np.uint8), rng.integers(0, 3, 40)
    # With this deviation a pixel is divided by 256, without rounding.
    data = Dataset("toy", x, y, x[:9], y[:9], 3, mean=(0.0,), std=(256 / 255,))
    net = Mlp(hidden=(5,)).build(data.input_shape, 3)
    start = net.init(rng).astype(dtype)
    batches = [
        [MiniBatch(rng.choice(40, BATCH_SIZE, replace=False), None) for _ in range(NUM_STEPS)]
        for _ in range(NUM_CLIENTS)
    ]
    deltas = np.empty((NUM_CLIENTS, len(start)), dtype)
    task = stack(np.zeros(NUM_CLIENTS, dtype=np.int64), batches)
    StackedTrainer(net, TaskLoss(), local, Gather(data)).train_one(start[None], task, deltas)
    alone = []
    for mine in batches:
        training = SingleTrainer(net, TaskLoss(), local, data).begin(start)
        for batch in mine:
            training.step(batch, {}, 1.0)
        alone.append(training.delta)
    return deltas, np.stack(alone)


OPTIMIZERS = sorted(list_torch_optimizers().keys() - {"muon"})  # muon accepts matrices only


@pytest.mark.usefixtures("_double_precision")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_both_trainers_take_the_same_steps_in_double_precision(name: str) -> None:
    local = LocalTraining(lr=0.01, steps=1, optimizer=name)
    if local.optimizer.accepts_momentum:
        local = LocalTraining(lr=0.01, steps=1, optimizer=name, momentum=0.9)
    stacked, alone = train_both(local, np.float64)
    np.testing.assert_allclose(stacked, alone, rtol=0, atol=1e-9)
