from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class Momentum(NamedTuple):
    """Where one model has been going."""

    values: Floats32  # (P,)


@dataclass(frozen=True)
class FedAcg:
    r"""FedACG: clients start from where the model will probably be next.

    .. math::
        \Delta = \bar y - (x + \lambda m), \qquad m \leftarrow \lambda m + \Delta, \qquad x \leftarrow x + m

    What the bank holds, and clients receive, is the look-ahead :math:`x + \lambda m`; the model in use is x,
    which is the weighted mean of the clients' models. The other half of the method is at the clients: a spring to
    what they received, `local.Proximal` with :math:`\beta` as its strength.

    Symbols, Kim, Kim, Han 2024 -> here
        :math:`\lambda`  -> momentum
        m                -> Momentum.values, zero at first and as a session begins
    """

    momentum: float = 0.85

    def __post_init__(self) -> None:
        check_ranges(self, momentum="[0, 1)")

    def init(self, num_params: int) -> Momentum:
        return Momentum(np.zeros(num_params, dtype=np.float32))

    def step(
        self, state: Momentum, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[Momentum, Floats32]:
        update = combine(weights, deltas)
        moved = np.float32(self.momentum) * state.values + update
        return Momentum(moved), model + update + np.float32(self.momentum) * moved

    def eval_model(self, state: Momentum, model: Floats32) -> Floats32:
        return model - np.float32(self.momentum) * state.values
