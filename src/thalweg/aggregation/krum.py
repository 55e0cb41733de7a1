from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from thalweg.aggregation.robust import CombinedUpdates, no_updates, single_update
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.theory import krum, weighted_median

TooFew = Literal["median", "skip"]


@dataclass(frozen=True)
class Krum:
    r"""Krum: replaces the updates by the one that is closest to its neighbours.

    .. math::  k^* = \arg\min_k \sum_{j \in N_k} \lVert \Delta_k - \Delta_j \rVert^2

    where :math:`N_k` are the K - f - 2 updates closest to update k (`theory.krum_scores`), K is the
    number of updates and f the number of hostile ones. The model then learns from one client only.

    Symbols, Blanchard et al. 2017 -> here: :math:`f = \lceil` hostile :math:`\cdot K \rceil`.

    Differs from the paper: f is a share of the updates, because cohorts vary in size. Krum needs
    K > 2 f + 2. Smaller rounds use the median, which tolerates as many hostile clients, or are
    skipped (`too_few`); the metric `too_few` counts them.

    Five updates, f = 1, two neighbours each. Update 1 has 2 at distance 1 and 0 at distance 2:

    >>> deltas = np.array([[0], [2], [3], [6], [1000]], dtype=np.float32)
    >>> Krum(hostile=0.2).combine(deltas, np.full(5, 0.2)).deltas.tolist()
    [[2.0]]
    """

    hostile: float = 0.2
    """Share of the clients that may be hostile."""
    too_few: TooFew = "median"
    """Rounds with too few updates for Krum: use the median, or skip the round."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, hostile="[0, 0.5)")

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        return _select_nearest(deltas, weights, self.hostile, 1, self.too_few)


@dataclass(frozen=True)
class MultiKrum:
    r"""Multi-Krum: keeps the updates that are closest to their neighbours and drops the others.

    As `Krum`, but the m updates with the smallest scores are kept:

    .. math::  \Delta = \frac1m \sum_{k : \text{rank of } k \le m} \Delta_k, \qquad m = K - f

    They share the total weight: equally, or with `weighted` in proportion to the recipe's weights.
    The metric `left_out` counts the dropped updates.

    Symbols, Blanchard et al. 2017 -> here: m -> kept (None: K - f). Differs from the paper as
    `Krum` does.

    >>> deltas = np.array([[0], [2], [3], [6], [1000]], dtype=np.float32)
    >>> left = MultiKrum(hostile=0.2).combine(deltas, np.full(5, 0.2))
    >>> sorted(left.deltas.ravel().tolist()), left.weights.round(6).tolist()
    ([0.0, 2.0, 3.0, 6.0], [0.25, 0.25, 0.25, 0.25])
    """

    hostile: float = 0.2
    """Share of the clients that may be hostile."""
    kept: int | None = None
    """Number of updates to keep, at most K - f; none: K - f."""
    weighted: bool = False
    """Whether the kept updates count by the recipe's weights, which mostly follow from reports."""
    too_few: TooFew = "median"
    """Rounds with too few updates for Krum: use the median, or skip the round."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, hostile="[0, 0.5)", kept="[1, inf) or none")

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        return _select_nearest(
            deltas, weights, self.hostile, self.kept, self.too_few, self.weighted
        )


def _select_nearest(
    deltas: Floats32,
    weights: Floats,
    hostile: float,
    kept: int | None,
    too_few: TooFew,
    weighted: bool = False,
) -> CombinedUpdates:
    """Select updates by their Krum scores; updates of weight zero are ignored."""
    counted = np.flatnonzero(weights > 0)
    num = len(counted)
    if num == 0:
        return no_updates(deltas, weights)
    rows = deltas if num == len(deltas) else deltas[counted]
    num_hostile = math.ceil(hostile * num - 1e-9)  # 0.2 * 35 must give 7, not 8
    if num <= 2 * num_hostile + 2:
        extra_metrics = {"too_few": 1}
        if too_few == "skip":
            return no_updates(deltas, weights, extra_metrics)
        return single_update(weighted_median(rows, np.ones(num)), weights, extra_metrics)
    num_kept = min(num - num_hostile if kept is None else kept, num - num_hostile)
    selected = krum(rows, num_hostile, num_kept)
    shares = weights[counted][selected] if weighted else np.ones(len(selected))
    left_out = {"left_out": num - len(selected)} if len(selected) < num else {}
    return CombinedUpdates(rows[selected], shares * (weights.sum() / shares.sum()), left_out)
