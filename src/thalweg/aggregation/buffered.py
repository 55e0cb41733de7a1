from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.core.vectors import combine


class UpdateBuffer(NamedTuple):
    """The sum of the updates that have arrived since the last step of one model."""

    total: Floats32  # (P,) each update has its weight, relative to the mean weight of its round
    num_updates: int  # in the sum


@dataclass(frozen=True)
class Buffered:
    r"""FedBuff: collects updates over several rounds and steps when enough have arrived.

    .. math::
        S \leftarrow S + K \sum_n p_n f(s_n) \Delta_n, \qquad B \leftarrow B + K

        \text{if } B \ge b: \quad x \leftarrow x + \eta_g S / B, \qquad S \leftarrow 0, \quad
        B \leftarrow 0

    for the K updates that arrive in a round. With equal weights :math:`p_n = 1 / K` a step is the
    mean of the discounted updates in the buffer.

    Symbols, Nguyen et al. 2022 -> here
        K of the paper                       -> size (b)
        :math:`\eta_g`                       -> lr
        :math:`s(\tau) = 1 / \sqrt{1+\tau}`  -> f, the rule of the recipe's stage `staleness`
        :math:`p_n`                          -> weights of the recipe

    Differs from the paper: time consists of rounds, so several updates arrive at once. There is at
    most one step in a round, with the mean of all updates in the buffer, even if there are more
    than `size`. Staleness is counted in rounds, not in steps of the server. Between two steps
    clients receive the same model. Updates that are in the buffer at the end of the run, or when a
    session starts, have no effect.

    The first round brings one update of 3, the second round updates of 1 and 2. With a size of 3
    the model moves once, by their mean:

    >>> rule, model = Buffered(size=3), np.zeros(1, dtype=np.float32)
    >>> one, two = np.array([[3]], dtype=np.float32), np.array([[1], [2]], dtype=np.float32)
    >>> state, model = rule.step(rule.init(1), model, one, np.ones(1))
    >>> model.tolist(), state.num_updates
    ([0.0], 1)
    >>> state, model = rule.step(state, model, two, np.full(2, 0.5))
    >>> model.tolist(), state.num_updates
    ([2.0], 0)
    """

    needs_individual_updates = True
    counts_updates = True

    size: int = 10
    """Number of updates that have to arrive before the model changes."""
    lr: float = 1.0
    """Learning rate of the server."""

    def __post_init__(self) -> None:
        check_ranges(self, size="[1, inf)", lr="(0, inf)")

    def init(self, num_params: int) -> UpdateBuffer:
        return UpdateBuffer(np.zeros(num_params, dtype=np.float32), 0)

    def step(
        self, state: UpdateBuffer, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[UpdateBuffer, Floats32]:
        count = state.num_updates + len(weights)
        total = state.total + combine(len(weights) * weights, deltas)
        if count < self.size:
            return UpdateBuffer(total, count), model
        return self.init(len(model)), model + np.float32(self.lr / count) * total
