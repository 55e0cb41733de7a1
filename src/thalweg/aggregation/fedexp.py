from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class FedExpState(NamedTuple):
    """The model before the newest one; empty before the first step."""

    before: Floats32


@dataclass(frozen=True)
class FedExp:
    r"""FedExP: the more the clients disagree, the longer the server's step.

    .. math::
        \eta_g = \max\Big(1, \frac{\sum_n p_n \lVert \Delta_n \rVert^2}
                              {2 (\lVert \sum_n p_n \Delta_n \rVert^2 + \varepsilon)}\Big), \qquad
        x \leftarrow x + \eta_g \textstyle\sum_n p_n \Delta_n

    With equal weights this is the paper's formula (Jhunjhunwala et al. 2023). What is evaluated is the
    mean of the last two models, as there.

    Symbols -> here: :math:`\varepsilon` -> floor.
    """

    floor: float = 1e-3

    def __post_init__(self) -> None:
        check_ranges(self, floor="[0, inf)")

    def init(self, num_params: int) -> FedExpState:
        return FedExpState(np.empty(0, dtype=np.float32))

    def step(
        self, state: FedExpState, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[FedExpState, Floats32]:
        mean = combine(weights, deltas)
        return FedExpState(model.copy()), model + np.float32(
            self.server_lr(deltas, weights, mean)
        ) * mean

    def server_lr(self, deltas: Floats32, weights: Floats, mean: Floats32) -> float:
        """The server's learning rate for these updates, at least one."""
        norms = np.array([_squared_norm(delta) for delta in deltas])
        denominator = 2 * (_squared_norm(mean) + self.floor)
        if denominator == 0:  # nobody has moved, and no floor
            return 1.0
        return max(1.0, float(weights @ norms) / denominator)

    def eval_model(self, state: FedExpState, model: Floats32) -> Floats32:
        """The mean of the last two models."""
        return (state.before + model) / np.float32(2) if len(state.before) else model


def _squared_norm(vector: Floats32) -> float:
    wide = vector.astype(np.float64)
    return float(wide @ wide)
