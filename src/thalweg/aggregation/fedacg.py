from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class Momentum(NamedTuple):
    """The momentum of one model."""

    values: Floats32  # (P,)


@dataclass(frozen=True)
class FedAcg:
    r"""FedACG: server momentum, with clients that start from a look-ahead of the model.

    .. math::
        \Delta = \bar y - (x + \lambda m), \qquad
        m \leftarrow \lambda m + \Delta, \qquad x \leftarrow x + m

    Clients receive the look-ahead :math:`x + \lambda m`, which is also what the bank stores. The
    evaluated model is x, the weighted mean of the clients' models.

    Symbols, Kim, Kim, Han 2024 -> here
        :math:`\lambda`  -> momentum
        m                -> Momentum.values, zero before the first step and at a session start
        :math:`\bar y`   -> weighted mean of the clients' models; :math:`\Delta` of the updates

    This rule is one half of the method. The other half is a proximal term at the clients:
    `local.Proximal`, whose strength is the paper's :math:`\beta`. With momentum 0.5, an update of
    2 moves x from 0 to 2, and the next clients start at 2 + 0.5 * 2 = 3:

    >>> rule = FedAcg(momentum=0.5)
    >>> x, update = np.zeros(1, dtype=np.float32), np.array([[2]], dtype=np.float32)
    >>> state, ahead = rule.step(rule.init(1), x, update, np.ones(1))
    >>> ahead.tolist(), rule.eval_model(state, ahead).tolist()
    ([3.0], [2.0])
    """

    needs_individual_updates = False

    momentum: float = 0.85
    """Share of the momentum that each step keeps."""

    def __post_init__(self) -> None:
        check_ranges(self, momentum="[0, 1)")

    def init(self, num_params: int) -> Momentum:
        return Momentum(np.zeros(num_params, dtype=np.float32))

    def step(
        self, state: Momentum, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[Momentum, Floats32]:
        update = combine(weights, deltas)
        momentum = np.float32(self.momentum) * state.values + update
        return Momentum(momentum), model + update + np.float32(self.momentum) * momentum

    def eval_model(self, state: Momentum, model: Floats32) -> Floats32:
        return model - np.float32(self.momentum) * state.values
