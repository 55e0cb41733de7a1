"""Model probes of the fast engine: values of a model on the samples of a client."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.capabilities import Descent
from thalweg.core.types import Floats32, Ints, LastLayer
from thalweg.engine.stacked import Stack, StackedTrainer


class FixedModelProbe:
    """A model that does not change."""

    def __init__(self, trainer: StackedTrainer, params: Floats32) -> None:
        self._trainer, self._params = trainer, params

    def params(self) -> Floats32:
        return self._params.copy()

    def losses(self, rows: Ints) -> Floats32:
        return self._trainer.predict(self.params(), "train", rows)[1]

    def is_correct(self, rows: Ints) -> npt.NDArray[np.bool_]:
        guesses = self._trainer.predict(self.params(), "train", rows)[0]
        right: npt.NDArray[np.bool_] = guesses == self._trainer.labels(rows)
        return right

    def outputs(self, rows: Ints) -> Floats32:
        return self._trainer.outputs(self.params(), rows)

    def gradient(self, rows: Ints) -> Floats32:
        return self._trainer.gradient(self.params(), rows)

    def squared_gradients(self, rows: Ints) -> Floats32:
        return self._trainer.squared_gradients(self.params(), rows)

    def last_layer(self, rows: Ints, received: bool) -> LastLayer:
        return self._trainer.last_layer(self.params(), rows)

    def descend(self, rows: Ints, steps: int, lr_scale: float = 1.0) -> Descent:
        return self._trainer.descend(self.params(), rows, steps, lr_scale)


class StackModelProbe(FixedModelProbe):
    """The model of the client in row `k` of a stack, while the stack is trained."""

    def __init__(self, trainer: StackedTrainer, stack: Stack, k: int) -> None:
        super().__init__(trainer, stack.start[k].cpu().numpy())
        self._stack, self._k = stack, k

    def params(self) -> Floats32:
        values: Floats32 = self._stack.params[self._k].cpu().numpy().copy()
        return values

    def last_layer(self, rows: Ints, received: bool) -> LastLayer:
        params = self._stack.start[self._k].cpu().numpy() if received else self.params()
        return self._trainer.last_layer(params, rows)
