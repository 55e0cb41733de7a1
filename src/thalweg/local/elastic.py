from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.quadratic import Quadratic, QuadraticObjective


class Anchor(NamedTuple):
    """The model at the end of the last latent state, and the importance of its parameters."""

    params: Floats32  # (P,)
    fisher: Floats32  # (P,), zero before the first change of state


@dataclass(frozen=True)
class Elastic(QuadraticObjective):
    r"""Elastic weight consolidation (EWC): protect parameters that mattered in the last state.

    .. math::  F_k(w) + \tfrac{\lambda}{2} \textstyle\sum_i \Phi_i (w_i - w^*_i)^2

    The previous latent state is the old task. When samples of another state are about to arrive,
    the anchor :math:`w^*` is set to the client's current parameters, and :math:`\Phi` to the mean
    squared gradient of single samples (the diagonal of the empirical Fisher information) on the
    samples still held. Both are kept between rounds. Before the first change of state there is no
    penalty.

    Symbols, Kirkpatrick et al. (2017) -> here
        :math:`\lambda`      -> strength
        :math:`w^*, \Phi`    -> memo["anchor"], memo["fisher"]

    Differs from the paper: only the last state is protected, unless `keep` is positive (online
    EWC).

    The model is undecided between two classes, so that the loss is log 2 plus the penalty
    0.05 (4 * 0.5² + 0.5 * 0.5²) = 0.05625:

    >>> import torch
    >>> model = lambda params, x: torch.zeros(1, 1, 2)
    >>> from thalweg.local import Batch
    >>> batch = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
    >>> memo = {"anchor": torch.tensor([[0.5, 2.5]]), "fisher": torch.tensor([[4.0, 0.5]])}
    >>> loss = Elastic(strength=0.1).loss(model, torch.tensor([[1.0, 2.0]]), batch, memo)
    >>> round(loss.item(), 4)
    0.7494
    """

    uses_true_states: ClassVar[bool] = True  # is notified when the latent state changes

    strength: float = 0.1
    fisher_samples: int = 64
    """Largest number of samples for the Fisher information."""
    keep: float = 0.0
    """Share of the old Fisher information that is added to the new one (online EWC)."""

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)", fisher_samples="[1, inf)", keep="[0, 1]")

    def init(self, num_params: int) -> Anchor:
        nothing = np.zeros(num_params, dtype=np.float32)
        return Anchor(nothing, nothing)

    def start_tick(self, state: Anchor, probe: ModelProbe, rows: Ints, changed: bool) -> Anchor:
        if not changed or len(rows) == 0:
            return state
        fisher = probe.squared_gradients(subsample_rows(rows, self.fisher_samples))
        if self.keep:
            fisher = fisher + np.float32(self.keep) * state.fisher
        return Anchor(probe.params(), fisher)

    def memo(self, state: Anchor, start: Floats32) -> dict[str, Floats32]:
        return {"anchor": state.params, "fisher": state.fisher}

    def penalty(self, memo: Mapping[str, Any]) -> Quadratic:
        return Quadratic(scale=self.strength, curvature=memo["fisher"], centre=memo["anchor"])


def subsample_rows(rows: Ints, count: int) -> Ints:
    """Return at most `count` rows, spread evenly over all of them.

    >>> subsample_rows(np.arange(10), 4).tolist()
    [0, 2, 5, 7]
    """
    if len(rows) <= count:
        return rows
    return rows[np.arange(count) * len(rows) // count]
