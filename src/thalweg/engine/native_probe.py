"""Model probes that need PyTorch only for gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from thalweg.core.capabilities import Descent, ModelProbe
from thalweg.core.types import Floats32, Ints, LastLayer
from thalweg.native.trainer import NativeTrainer


class NativeProbe:
    """A model that does not change, of a net that the native kernel computes."""

    def __init__(
        self, trainer: NativeTrainer, params: Floats32, make_other: Callable[[], ModelProbe]
    ) -> None:
        self._trainer, self._params = trainer, params
        self._make_other = make_other  # a probe of the same model with PyTorch

    def params(self) -> Floats32:
        return self._params.copy()

    def losses(self, rows: Ints) -> Floats32:
        losses: Floats32 = self._trainer.predict(self._params, "train", rows)[1]
        return losses

    def is_correct(self, rows: Ints) -> npt.NDArray[np.bool_]:
        return self._make_other().is_correct(rows)

    def outputs(self, rows: Ints) -> Floats32:
        return self._trainer.outputs(self._params, "train", rows)

    def gradient(self, rows: Ints) -> Floats32:
        return self._make_other().gradient(rows)

    def squared_gradients(self, rows: Ints) -> Floats32:
        return self._make_other().squared_gradients(rows)

    def last_layer(self, rows: Ints, received: bool) -> LastLayer:
        return self._make_other().last_layer(rows, received)

    def descend(self, rows: Ints, steps: int, lr_scale: float = 1.0) -> Descent:
        return self._make_other().descend(rows, steps, lr_scale)
