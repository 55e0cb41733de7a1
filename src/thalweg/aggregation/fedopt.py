"""Adaptive server optimizers: FedAdagrad, FedYogi and FedAdam, without bias correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class ServerMoments(NamedTuple):
    """First and second moment of the mean updates of one model, each (P,)."""

    mean: Floats32
    square: Floats32


@dataclass(frozen=True)
class FedAdam:
    r"""FedAdam: the server takes an Adam step in the direction of the mean update.

    .. math::
        m \leftarrow \beta_1 m + (1 - \beta_1) \bar\Delta, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) \bar\Delta^2, \qquad
        x \leftarrow x + \eta\, m / (\sqrt v + \tau)

    Symbols, Reddi et al. 2021 -> here
        :math:`\beta_1, \beta_2`  -> beta_mean, beta_square
        :math:`\eta, \tau`        -> lr, adaptivity; v starts at :math:`\tau^2`, m at zero
        :math:`\bar\Delta`        -> weighted mean of the updates; all operations are elementwise

    As in the paper there is no bias correction of m and v. Other libraries differ: Flower starts
    with v = 0. The paper tunes the learning rate for each task. Differs from the paper: the mean of
    the updates has the weights of the recipe, and m and v start again with every session.

    With both betas 0 the moments are the current values: m = 0.5 and v = 0.25, so the step is
    0.1 * 0.5 / (0.5 + 0.5):

    >>> rule = FedAdam(lr=0.1, beta_mean=0.0, beta_square=0.0, adaptivity=0.5)
    >>> model, deltas = np.zeros(1, dtype=np.float32), np.array([[0.5]], dtype=np.float32)
    >>> state, moved = rule.step(rule.init(1), model, deltas, np.ones(1))
    >>> round(float(moved[0]), 6), float(state.square[0])
    (0.05, 0.25)
    """

    needs_individual_updates = False

    lr: float = 0.01
    """Learning rate of the server."""
    beta_mean: float = 0.9
    """Share of the previous mean of the updates that each step keeps."""
    beta_square: float = 0.99
    """Share of the previous mean of the squared updates that each step keeps."""
    adaptivity: float = 1e-3
    """Added to the denominator; its square is the initial second moment. Smaller: more adaptive."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            lr="(0, inf)",
            beta_mean="[0, 1)",
            beta_square="[0, 1)",
            adaptivity="(0, inf)",
        )

    def init(self, num_params: int) -> ServerMoments:
        return _init_moments(num_params, self.adaptivity)

    def step(
        self, state: ServerMoments, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[ServerMoments, Floats32]:
        update = combine(weights, deltas).astype(np.float64)
        mean = self.beta_mean * state.mean + (1 - self.beta_mean) * update
        square = self._next_square(state.square, update)
        return _apply(model, mean, square, self.lr, self.adaptivity)

    def _next_square(self, square: Floats32, update: Floats) -> Floats:
        """Return the second moment (P,) after an update (P,)."""
        return self.beta_square * square + (1 - self.beta_square) * update**2


@dataclass(frozen=True)
class FedYogi(FedAdam):
    r"""FedYogi: like FedAdam, but the second moment changes by a bounded amount.

    .. math::
        m \leftarrow \beta_1 m + (1 - \beta_1) \bar\Delta, \qquad
        v \leftarrow v - (1 - \beta_2) \bar\Delta^2\, \mathrm{sign}(v - \bar\Delta^2), \qquad
        x \leftarrow x + \eta\, m / (\sqrt v + \tau)

    After a large update, v decreases more slowly than with FedAdam, so steps grow more slowly.

    Symbols, Reddi et al. 2021 -> here
        :math:`\beta_1, \beta_2`  -> beta_mean, beta_square
        :math:`\eta, \tau`        -> lr, adaptivity; v starts at :math:`\tau^2`, m at zero
        :math:`\bar\Delta`        -> weighted mean of the updates; all operations are elementwise

    As in the paper there is no bias correction of m and v. Differs from the paper: see `FedAdam`.

    With an update of 0.5, v = 1 decreases by half of 0.25, to 0.875; FedAdam's v would be
    0.5 * 1 + 0.5 * 0.25 = 0.625:

    >>> rule = FedYogi(beta_square=0.5, adaptivity=1.0)
    >>> model, deltas = np.zeros(1, dtype=np.float32), np.array([[0.5]], dtype=np.float32)
    >>> state, _ = rule.step(rule.init(1), model, deltas, np.ones(1))
    >>> float(state.square[0])
    0.875
    """

    beta_square: float = 0.99
    """One minus the share of the squared update by which the second moment changes."""

    def _next_square(self, square: Floats32, update: Floats) -> Floats:
        before = square.astype(np.float64)
        return before - (1 - self.beta_square) * update**2 * np.sign(before - update**2)


@dataclass(frozen=True)
class FedAdagrad:
    r"""FedAdagrad: server steps that shrink with the sum of all squared mean updates.

    .. math::
        m \leftarrow \beta_1 m + (1 - \beta_1) \bar\Delta, \qquad
        v \leftarrow v + \bar\Delta^2, \qquad
        x \leftarrow x + \eta\, m / (\sqrt v + \tau)

    Because v never decreases, the rule reacts less and less to drift.

    Symbols, Reddi et al. 2021 -> here
        :math:`\beta_1`     -> beta_mean; 0 in the paper's experiments and by default
        :math:`\eta, \tau`  -> lr, adaptivity; v starts at :math:`\tau^2`, m at zero
        :math:`\bar\Delta`  -> weighted mean of the updates; all operations are elementwise

    Differs from the paper: see `FedAdam`.

    Two updates of 3 and 4 with :math:`\tau = 1`: v = 1 + 9 + 16 = 26:

    >>> rule = FedAdagrad(adaptivity=1.0)
    >>> state, model = rule.init(1), np.zeros(1, dtype=np.float32)
    >>> for update in (3, 4):
    ...     deltas = np.array([[update]], dtype=np.float32)
    ...     state, model = rule.step(state, model, deltas, np.ones(1))
    >>> float(state.square[0])
    26.0
    """

    needs_individual_updates = False

    lr: float = 0.1
    """Learning rate of the server."""
    beta_mean: float = 0.0
    """Share of the previous mean of the updates that each step keeps."""
    adaptivity: float = 1e-3
    """Added to the denominator; its square is the initial second moment. Smaller: more adaptive."""

    def __post_init__(self) -> None:
        check_ranges(self, lr="(0, inf)", beta_mean="[0, 1)", adaptivity="(0, inf)")

    def init(self, num_params: int) -> ServerMoments:
        return _init_moments(num_params, self.adaptivity)

    def step(
        self, state: ServerMoments, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[ServerMoments, Floats32]:
        update = combine(weights, deltas).astype(np.float64)
        mean = self.beta_mean * state.mean + (1 - self.beta_mean) * update
        return _apply(model, mean, state.square + update**2, self.lr, self.adaptivity)


def _init_moments(num_params: int, adaptivity: float) -> ServerMoments:
    square = np.full(num_params, adaptivity**2, dtype=np.float32)
    return ServerMoments(np.zeros(num_params, dtype=np.float32), square)


def _apply(
    model: Floats32, mean: Floats, square: Floats, lr: float, adaptivity: float
) -> tuple[ServerMoments, Floats32]:
    """Return the new state and the model after a step with new moments (P,)."""
    moved = model + lr * mean / (np.sqrt(square) + adaptivity)
    moments = ServerMoments(mean.astype(np.float32), square.astype(np.float32))
    return moments, moved.astype(np.float32)
