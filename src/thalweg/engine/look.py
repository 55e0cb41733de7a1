"""One client's view of its model, while it is trained in a stack with others."""

from __future__ import annotations

from thalweg.core.types import Floats32, Glance, Ints
from thalweg.engine.stacked import Stack, StackedTrainer


class StackLook:
    """The view of the client in row `k` of a stack."""

    def __init__(self, trainer: StackedTrainer, stack: Stack, k: int) -> None:
        self._trainer, self._stack, self._k = trainer, stack, k

    def params(self) -> Floats32:
        values: Floats32 = self._stack.params[self._k].numpy().copy()
        return values

    def losses(self, rows: Ints) -> Floats32:
        return self._trainer.predict(self.params(), "train", rows)[1]

    def squared_gradients(self, rows: Ints) -> Floats32:
        return self._trainer.squared_gradients(self.params(), rows)

    def glance(self, rows: Ints, received: bool) -> Glance:
        params = self._stack.start[self._k].numpy() if received else self.params()
        return self._trainer.glance(params, rows)
