from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class AdaptiveState(NamedTuple):
    """Moving averages of one model, without bias correction."""

    steps: int
    mean: Floats32  # (P,) of the model
    variance: float  # of the model's mean squared distance to that mean
    ratio: float  # of the ratio of consecutive variances


@dataclass(frozen=True)
class Adaptive:
    r"""Adaptive-FedAvg: FedAvg that raises the clients' learning rate when the model changes more.

    With :math:`\theta_t` the new model and hats for bias-corrected moving averages,

    .. math::
        \mu \leftarrow \beta_1 \mu + (1 - \beta_1) \theta_t, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2)\, \mathrm{mean}\big((\theta_t - \hat\mu_{t-1})^2\big)

        \gamma \leftarrow \beta_3 \gamma + (1 - \beta_3)\, \hat v_t / \hat v_{t-1}, \qquad
        \eta_{t+1} = \min(\eta_0, \eta_0 \hat\gamma / t)

    Symbols, Canonaco et al. 2021 -> here
        :math:`\beta_1, \beta_2, \beta_3`  -> beta_mean, beta_var, beta_ratio
        :math:`\eta_{t+1} / \eta_0`        -> `lr_scale`, sent with the model
        the division by t                  -> decay

    Differs from the authors' code: the bias-corrected mean is not fed back into the average. The
    ratio is 1 if the previous variance is zero or does not exist.

    The first model (1, 0) has variance (1 + 0) / 2 around zero, the second (1, 1) has variance 0.5
    around the first. The ratio is 1, and the division by t = 2 halves the learning rate:

    >>> rule = Adaptive()
    >>> state = rule.update_state(rule.init(2), np.array([1, 0], dtype=np.float32))
    >>> state = rule.update_state(state, np.array([1, 1], dtype=np.float32))
    >>> rule.lr_scale(state)
    0.5
    """

    needs_individual_updates = False

    beta_mean: float = 0.5
    beta_var: float = 0.5
    beta_ratio: float = 0.5
    decay: Literal["inverse_round", "none"] = "inverse_round"
    """Whether the clients' learning rate is divided by the number of steps."""
    lr: float = 1.0
    """Learning rate of the server."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self, lr="(0, inf)", beta_mean="[0, 1)", beta_var="[0, 1)", beta_ratio="[0, 1)"
        )

    def init(self, num_params: int) -> AdaptiveState:
        return AdaptiveState(0, np.zeros(num_params, dtype=np.float32), 0.0, 0.0)

    def step(
        self, state: AdaptiveState, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[AdaptiveState, Floats32]:
        moved = model + combine(self.lr * weights, deltas)
        return self.update_state(state, moved), moved

    def update_state(self, state: AdaptiveState, model: Floats32) -> AdaptiveState:
        """Return the averages after a step to `model` (P,)."""
        before, now = state.steps, state.steps + 1
        theta = model.astype(np.float64)
        expected = state.mean / (1 - self.beta_mean**before) if before else np.zeros_like(theta)
        variance = (
            self.beta_var * state.variance
            + (1 - self.beta_var) * np.mean((theta - expected) ** 2).item()
        )
        ratio = 1.0
        if before and state.variance > 0:
            corrected = variance / (1 - self.beta_var**now)
            ratio = corrected / (state.variance / (1 - self.beta_var**before))
        return AdaptiveState(
            steps=now,
            mean=(self.beta_mean * state.mean + (1 - self.beta_mean) * theta).astype(np.float32),
            variance=variance,
            ratio=self.beta_ratio * state.ratio + (1 - self.beta_ratio) * ratio,
        )

    def lr_scale(self, state: AdaptiveState) -> float:
        """Return the factor of the clients' learning rate, at most one."""
        if state.steps == 0:
            return 1.0
        corrected = state.ratio / (1 - self.beta_ratio**state.steps)
        rounds = state.steps if self.decay == "inverse_round" else 1
        return min(1.0, corrected / rounds)
