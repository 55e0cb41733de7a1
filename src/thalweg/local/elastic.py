from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import Batch, Memo, Model
from thalweg.local.cross_entropy import CrossEntropy

if TYPE_CHECKING:
    from torch import Tensor


class Anchor(NamedTuple):
    """The model at the end of the last latent state, and how much each parameter mattered there."""

    params: Floats32  # (P,)
    fisher: Floats32  # (P,), zero before the first change of state


@dataclass(frozen=True)
class Elastic:
    r"""Elastic weight consolidation (EWC) at the client; the previous latent state is the old task.

    .. math::  F_k(w) + \tfrac{\lambda}{2} \textstyle\sum_i \Phi_i (w_i - w^*_i)^2

    When samples of another state are about to arrive, the anchor :math:`w^*` is set to the client's
    parameters of that moment, and :math:`\Phi` to the mean squared gradient of single samples (the empirical
    Fisher information) on what the client still holds of the old state. Both are kept between rounds. Before
    the first change of state there is no pull.

    Symbols, Kirkpatrick et al. 2017 -> here
        :math:`\lambda`      -> strength
        :math:`w^*, \Phi`    -> memo["anchor"], memo["fisher"]
    """

    strength: float = 0.1
    fisher_samples: int = 64
    """Samples, at most, from which the importance of parameters is estimated."""
    keep: float = 0.0
    """Share of the old importance that stays (online EWC): :math:`\\Phi \\leftarrow` keep :math:`\\Phi +` new."""

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)", fisher_samples="[1, inf)", keep="[0, 1]")

    def init(self, num_params: int) -> Anchor:
        nothing = np.zeros(num_params, dtype=np.float32)
        return Anchor(nothing, nothing)

    def start_tick(self, state: Anchor, look: ModelProbe, rows: Ints, changed: bool) -> Anchor:
        if not changed or len(rows) == 0:
            return state
        fisher = look.squared_gradients(subsample_rows(rows, self.fisher_samples))
        if self.keep:
            fisher = fisher + np.float32(self.keep) * state.fisher
        return Anchor(look.params(), fisher)

    def memo(self, state: Anchor, start: Floats32) -> dict[str, Floats32]:
        return {"anchor": state.params, "fisher": state.fisher}

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        away = params - memo["anchor"]
        fit = CrossEntropy().loss(model, params, batch, memo)
        return fit + self.strength / 2 * (memo["fisher"] * away * away).sum(1)


def subsample_rows(rows: Ints, count: int) -> Ints:
    """At most `count` rows, spread evenly over all of them.

    >>> subsample_rows(np.arange(10), 4).tolist()
    [0, 2, 5, 7]
    """
    if len(rows) <= count:
        return rows
    return rows[np.arange(count) * len(rows) // count]
