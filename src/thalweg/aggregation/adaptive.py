from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class AdaptiveState(NamedTuple):
    """How the model has been moving."""

    steps: int
    mean: Floats32  # (P,) moving average of the model
    variance: float  # moving average of its squared distance to that
    ratio: float  # moving average of how that variance changes


@dataclass(frozen=True)
class Adaptive:
    r"""Adaptive-FedAvg: FedAvg whose clients learn faster while the model's variance grows.

    With :math:`\theta_t` the new model and hats for bias-corrected averages,

    .. math::
        \mu \leftarrow \beta_1 \mu + (1 - \beta_1) \theta_t, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2)\, \mathrm{mean}\big((\theta_t - \hat\mu_{t-1})^2\big)

        \gamma \leftarrow \beta_3 \gamma + (1 - \beta_3)\, \hat v_t / \hat v_{t-1}, \qquad
        \eta_{t+1} = \min(\eta_0, \eta_0 \hat\gamma / t)

    Symbols, Canonaco et al. 2021 -> here
        :math:`\beta_1, \beta_2, \beta_3`  -> beta_mean, beta_var, beta_ratio
        :math:`\eta_{t+1} / \eta_0`        -> `lr_scale`, sent with the model
        the division by t                  -> decay

    Differs from the authors' code: the bias-corrected mean is not fed back into the average. Without a
    previous variance, or with one of zero, the ratio is 1.
    """

    beta_mean: float = 0.5
    beta_var: float = 0.5
    beta_ratio: float = 0.5
    decay: Literal["inverse_round", "none"] = "inverse_round"
    lr: float = 1.0
    """The server's own learning rate."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, lr="(0, inf)")
        for name in ("beta_mean", "beta_var", "beta_ratio"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must lie in [0, 1), got {value}.")

    def init(self, num_params: int) -> AdaptiveState:
        return AdaptiveState(0, np.zeros(num_params, dtype=np.float32), 0.0, 0.0)

    def step(
        self, state: AdaptiveState, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[AdaptiveState, Floats32]:
        moved = model + combine(self.lr * weights, deltas)
        return self.update_state(state, moved), moved

    def update_state(self, state: AdaptiveState, model: Floats32) -> AdaptiveState:
        """The pulse once the model has come to be `model`."""
        before, now = state.steps, state.steps + 1
        theta = model.astype(np.float64)
        usual = state.mean / (1 - self.beta_mean**before) if before else np.zeros_like(theta)
        variance = (
            self.beta_var * state.variance
            + (1 - self.beta_var) * np.mean((theta - usual) ** 2).item()
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
        """What the clients' learning rate is multiplied by, at most one."""
        if state.steps == 0:
            return 1.0
        corrected = state.ratio / (1 - self.beta_ratio**state.steps)
        rounds = state.steps if self.decay == "inverse_round" else 1
        return min(1.0, corrected / rounds)
