from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class FedExpState(NamedTuple):
    """The previous model; empty before the first step."""

    before: Floats32


@dataclass(frozen=True)
class FedExp:
    r"""FedExP: the server's step is longer, the more the updates disagree.

    .. math::
        \eta_g = \max\Big(1, \frac{\sum_n p_n \lVert \Delta_n \rVert^2}
                              {2 (\lVert \sum_n p_n \Delta_n \rVert^2 + \varepsilon)}\Big), \qquad
        x \leftarrow x + \eta_g \textstyle\sum_n p_n \Delta_n

    The evaluated model is the mean of the last two models, as in the paper.

    Symbols, Jhunjhunwala et al. 2023 -> here: :math:`\varepsilon` -> floor; :math:`p_n` -> weights.
    Differs from the paper: weights may be unequal; with equal ones the formulas agree.

    Two orthogonal updates of squared length 9 and their mean (1.5, 1.5) of squared length 4.5: the
    learning rate is 9 / (2 * 4.5) = 1. A third client without a change makes the mean (1, 1), and
    the rate becomes 6 / (2 * 2) = 1.5:

    >>> rule = FedExp(floor=0.0)
    >>> deltas = np.array([[3, 0], [0, 3], [0, 0]], dtype=np.float32)
    >>> _, moved = rule.step(rule.init(2), np.zeros(2, dtype=np.float32), deltas, np.full(3, 1 / 3))
    >>> moved.round(6).tolist()
    [1.5, 1.5]
    """

    floor: float = 1e-3
    """Added to the denominator, so that small updates do not cause huge steps."""

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
        """Return the server's learning rate for these updates, at least one."""
        norms = np.array([_squared_norm(delta) for delta in deltas])
        denominator = 2 * (_squared_norm(mean) + self.floor)
        if denominator == 0:  # all updates are zero, and there is no floor
            return 1.0
        return max(1.0, float(weights @ norms) / denominator)

    def eval_model(self, state: FedExpState, model: Floats32) -> Floats32:
        """Return the mean of the last two models."""
        return (state.before + model) / np.float32(2) if len(state.before) else model


def _squared_norm(vector: Floats32) -> float:
    wide = vector.astype(np.float64)
    return float(wide @ wide)
