from __future__ import annotations

import math
from dataclasses import dataclass

from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


@dataclass(frozen=True)
class Step:
    r"""Move the model by the weighted mean of the updates: :math:`x \leftarrow x + \eta_g \sum_n p_n \Delta_n`.

    With ``lr=1`` and weights that sum to one this is the weighted mean of the clients' models.
    """

    lr: float = 1.0

    def __post_init__(self) -> None:
        require(
            0 < self.lr < math.inf, f"the server's lr must be positive and finite, got {self.lr}."
        )

    def init(self, num_params: int) -> None:
        return None

    def step(
        self, state: None, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[None, Floats32]:
        return None, model + combine(self.lr * weights, deltas)
