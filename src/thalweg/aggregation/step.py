from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


@dataclass(frozen=True)
class Step:
    r"""Move the model by the weighted mean of the updates: :math:`x \leftarrow x + \eta_g \sum_n p_n \Delta_n`.

    With ``lr=1`` and weights that sum to one this is the weighted mean of the clients' models. With a
    `radius` the model is then put back onto the ball of that radius around zero, if it has left it, as theories
    like to have it.
    """

    lr: float = 1.0
    radius: float | None = None
    """Largest length of the parameter vector; none: any."""

    def __post_init__(self) -> None:
        check_ranges(self, lr="(0, inf)", radius="(0, inf) or none")

    def init(self, num_params: int) -> None:
        return None

    def step(
        self, state: None, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[None, Floats32]:
        return None, self._project(model + combine(self.lr * weights, deltas))

    def _project(self, model: Floats32) -> Floats32:
        if self.radius is None:
            return model
        length = float(np.linalg.norm(model.astype(np.float64)))
        return model if length <= self.radius else model * np.float32(self.radius / length)
