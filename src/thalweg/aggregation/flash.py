from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class Moments(NamedTuple):
    """Moving averages of one model, each (P,)."""

    mean: Floats32
    variance: Floats32
    drift: Floats32


@dataclass(frozen=True)
class Flash:
    r"""Flash: an adaptive server optimizer with larger steps where the updates have changed.

    .. math::
        m \leftarrow \beta_1 m + (1 - \beta_1) \bar\Delta, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) \bar\Delta^2, \qquad
        \beta_3 = \frac{|v_{prev}|}{|\bar\Delta^2 - v| + |v_{prev}|}

        d \leftarrow \beta_3 d + (1 - \beta_3)(\bar\Delta^2 - v), \qquad
        x \leftarrow x + \eta_g\, m / (\max(\sqrt v - d, 0) + \tau)

    Symbols, Panchal et al. 2023 -> here
        :math:`\beta_1, \beta_2`   -> beta_mean, beta_var
        :math:`\eta_g, \tau`       -> lr, adaptivity_floor; v starts at :math:`\tau^2`
        :math:`\bar\Delta`        -> weighted mean of the updates; all operations are elementwise

    Differs from the paper: right after a large drift :math:`\sqrt v - d` is negative, and the step
    has the wrong direction; here it is at least zero unless ``raw=True``. A parameter that never
    changed has :math:`\beta_3 = 0/0`, which is taken as 1.

    With both betas 0 the averages are the current values: m = 0.5, v = 0.25 and d = 0, so the step
    is 0.1 * 0.5 / (0.5 + 0.5):

    >>> rule = Flash(lr=0.1, beta_mean=0.0, beta_var=0.0, adaptivity_floor=0.5)
    >>> model, deltas = np.zeros(1, dtype=np.float32), np.array([[0.5]], dtype=np.float32)
    >>> state, moved = rule.step(rule.init(1), model, deltas, np.ones(1))
    >>> round(float(moved[0]), 6)
    0.05
    """

    needs_individual_updates = False

    lr: float = 0.01
    """Learning rate of the server."""
    beta_mean: float = 0.9
    beta_var: float = 0.99
    adaptivity_floor: float = 1e-3
    """Added to the denominator; its square is the initial variance."""
    raw: bool = False
    """Whether to use the paper's denominator, which may be negative."""

    def __post_init__(self) -> None:
        check_ranges(
            self, lr="(0, inf)", adaptivity_floor="(0, inf)", beta_mean="[0, 1)", beta_var="[0, 1)"
        )

    def init(self, num_params: int) -> Moments:
        zero = np.zeros(num_params, dtype=np.float32)
        return Moments(zero, np.full(num_params, self.adaptivity_floor**2, dtype=np.float32), zero)

    def step(
        self, state: Moments, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[Moments, Floats32]:
        update = combine(weights, deltas).astype(np.float64)
        square, before = update**2, state.variance.astype(np.float64)
        mean = self.beta_mean * state.mean + (1 - self.beta_mean) * update
        variance = self.beta_var * before + (1 - self.beta_var) * square
        deviation = square - variance
        total = np.abs(deviation) + np.abs(before)
        is_zero = total == 0  # 0 / 0: keep the previous drift
        beta_drift = np.where(is_zero, 1.0, np.abs(before) / np.where(is_zero, 1.0, total))
        drift = beta_drift * state.drift + (1 - beta_drift) * deviation
        spread = np.sqrt(variance) - drift
        if not self.raw:
            spread = np.maximum(spread, 0.0)
        moved = model + self.lr * mean / (spread + self.adaptivity_floor)
        return Moments(*(part.astype(np.float32) for part in (mean, variance, drift))), (
            moved.astype(np.float32)
        )
