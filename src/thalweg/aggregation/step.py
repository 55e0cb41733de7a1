from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


@dataclass(frozen=True)
class Step:
    r"""Adds the weighted mean of the updates to the model, as in FedAvg.

    .. math::  x \leftarrow x + \eta_g \sum_n p_n \Delta_n

    With ``lr=1`` and weights that sum to one, the result is the weighted mean of the clients'
    models. With a `radius` the model is then projected onto the ball of that radius around zero,
    as many convergence proofs assume.

    Symbols: :math:`\eta_g` -> lr, :math:`p_n` -> weights, :math:`\Delta_n` -> deltas.

    >>> model, deltas = np.zeros(2, dtype=np.float32), np.array([[4, 0], [0, 8]], dtype=np.float32)
    >>> Step().step(None, model, deltas, np.array([0.75, 0.25]))[1].tolist()
    [3.0, 2.0]
    """

    needs_individual_updates = False

    lr: float = 1.0
    """Learning rate of the server."""
    radius: float | None = None
    """Maximum length of the parameter vector; none: unlimited."""

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
