"""A fake `ModelProbe` with given numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thalweg.core.capabilities import Descent
from thalweg.core.types import Floats32, Ints, LastLayer


class FakeModelProbe:
    """Returns given numbers, and records the rows of each call in `asked`."""

    def __init__(
        self, params: Sequence[float], fisher: Sequence[float] = (), loss: float = 1.0
    ) -> None:
        self.values, self.fisher, self.loss = params, fisher, loss
        self.asked: list[list[int]] = []

    def params(self) -> Floats32:
        return np.array(self.values, dtype=np.float32)

    def losses(self, rows: Ints) -> Floats32:
        return np.full(len(rows), self.loss, dtype=np.float32)

    def is_correct(self, rows: Ints) -> np.ndarray:
        return np.full(len(rows), self.loss < 1)

    def outputs(self, rows: Ints) -> Floats32:
        """Return the row number for each of three classes."""
        return np.repeat(rows[:, None], 3, axis=1).astype(np.float32)

    def gradient(self, rows: Ints) -> Floats32:
        """Return the gradient of half the squared norm of the parameters."""
        self.asked.append(rows.tolist())
        return self.params()

    def descend(self, rows: Ints, steps: int, lr_scale: float = 1.0) -> Descent:
        """Take SGD steps of learning rate 0.1 with the gradient of `gradient`."""
        start = self.params()
        moved = start * np.float32((1 - 0.1 * lr_scale) ** steps)
        return Descent(moved, float(np.linalg.norm(start)))

    def squared_gradients(self, rows: Ints) -> Floats32:
        self.asked.append(rows.tolist())
        return np.array(self.fisher, dtype=np.float32)

    def last_layer(self, rows: Ints, received: bool) -> LastLayer:
        return some_last_layer(len(rows))


def some_last_layer(count: int, num_classes: int = 3, num_features: int = 2) -> LastLayer:
    """Return errors and features that differ for every sample."""
    rng = np.random.default_rng(count)
    logits = rng.normal(size=(count, num_classes))
    errors = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    errors[np.arange(count), np.arange(count) % num_classes] -= 1
    features = rng.normal(size=(count, num_features))
    return LastLayer(errors.astype(np.float32), features.astype(np.float32))
