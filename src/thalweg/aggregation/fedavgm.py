from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.aggregation.fedacg import Momentum
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


@dataclass(frozen=True)
class FedAvgM:
    r"""FedAvgM: FedAvg with momentum at the server.

    .. math::
        v \leftarrow \beta v + \bar\Delta, \qquad x \leftarrow x + \eta\, v

    Symbols, Hsu et al. 2019 -> here
        :math:`\beta`       -> momentum
        :math:`\eta`        -> lr, 1 in the paper
        v                   -> Momentum.values, zero before the first step and at a session start
        :math:`\bar\Delta`  -> weighted mean of the updates

    Differs from the paper: the weights are those of the recipe, not the numbers of samples. The
    paper tries momenta from 0 to 0.997.

    With momentum 0.5 two updates of 2 give v = 2, then v = 0.5 * 2 + 2 = 3, so the model moves from
    0 to 2 and then to 5:

    >>> rule = FedAvgM(momentum=0.5)
    >>> x, update = np.zeros(1, dtype=np.float32), np.array([[2]], dtype=np.float32)
    >>> state, first = rule.step(rule.init(1), x, update, np.ones(1))
    >>> state, second = rule.step(state, first, update, np.ones(1))
    >>> first.tolist(), second.tolist()
    ([2.0], [5.0])
    """

    needs_individual_updates = False

    momentum: float = 0.9
    """Share of the momentum that each step keeps."""
    lr: float = 1.0
    """Learning rate of the server. In the long run steps are lr / (1 - momentum) times as long as
    those of FedAvg."""

    def __post_init__(self) -> None:
        check_ranges(self, momentum="[0, 1)", lr="(0, inf)")

    def init(self, num_params: int) -> Momentum:
        return Momentum(np.zeros(num_params, dtype=np.float32))

    def step(
        self, state: Momentum, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[Momentum, Floats32]:
        momentum = np.float32(self.momentum) * state.values + combine(weights, deltas)
        return Momentum(momentum), model + np.float32(self.lr) * momentum
