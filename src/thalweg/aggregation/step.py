from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges, choice, convert_parts
from thalweg.core.decay import DECAYS, LrDecay
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class StepCount(NamedTuple):
    """The number of steps of one model since the start of the session."""

    steps: int


@dataclass(frozen=True)
class Step:
    r"""Adds the weighted mean of the updates to the model, as in FedAvg.

    .. math::  x \leftarrow x + \eta_g \sum_n p_n \Delta_n

    With ``lr=1`` and weights that sum to one, the result is the weighted mean of the clients'
    models. With a `radius` the model is then projected onto the ball of that radius around zero,
    as many convergence proofs assume. With a `decay` the learning rate follows a schedule, which
    counts the steps of a session.

    Symbols: :math:`\eta_g` -> lr times the factor of `decay`, :math:`p_n` -> weights,
    :math:`\Delta_n` -> deltas.

    >>> model, deltas = np.zeros(2, dtype=np.float32), np.array([[4, 0], [0, 8]], dtype=np.float32)
    >>> Step().step(None, model, deltas, np.array([0.75, 0.25]))[1].tolist()
    [3.0, 2.0]
    """

    needs_individual_updates = False

    lr: float = 1.0
    """Learning rate of the server."""
    radius: float | None = None
    """Maximum length of the parameter vector; none: unlimited."""
    decay: LrDecay | None = choice(DECAYS, default=None)
    """Schedule of the server's learning rate within a session; none: constant."""

    def __post_init__(self) -> None:
        convert_parts(self)
        check_ranges(self, lr="(0, inf)", radius="(0, inf) or none")

    def init(self, num_params: int) -> StepCount | None:
        return None if self.decay is None else StepCount(0)

    def step(
        self, state: StepCount | None, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[StepCount | None, Floats32]:
        lr = self.lr
        if self.decay is not None and state is not None:
            lr *= self.decay.factor(state.steps)
            state = StepCount(state.steps + 1)
        return state, self._project(model + combine(lr * weights, deltas))

    def _project(self, model: Floats32) -> Floats32:
        if self.radius is None:
            return model
        length = float(np.linalg.norm(model.astype(np.float64)))
        return model if length <= self.radius else model * np.float32(self.radius / length)
