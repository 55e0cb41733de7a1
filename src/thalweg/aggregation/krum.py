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
    r"""The one update that is nearest to its neighbours, in the place of the mean.

    Of K updates, f of which may be hostile, that with the smallest sum of squared distances to its K - f - 2
    nearest (`theory.krum_scores`). What one client has learnt is then all that is learnt in a round.

    Krum needs K > 2 f + 2. Streams have rounds with fewer clients than that, so f is a share of those heard, and in
    such a round the median takes its place, which needs no f and withstands as many; or the round is skipped
    (`too_few`). Counted as `too_few` in the metrics.

    Symbols, Blanchard et al. 2017 -> here: :math:`f = \lceil` hostile :math:`\cdot K \rceil`.
    """

    hostile: float = 0.2
    """Share of the clients that may be hostile."""
    too_few: TooFew = "median"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, hostile="[0, 0.5)")

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        return _select_nearest(deltas, weights, self.hostile, 1, self.too_few)


@dataclass(frozen=True)
class MultiKrum:
    r"""The mean of the updates that are nearest to their neighbours: all but as many as may be hostile.

    As `Krum`, but the K - f with the smallest scores count, or `kept` of them. They share the weight of all:
    equally, or with `weighted` as the recipe says. Left out are `left_out`, in the metrics.

    Symbols, Blanchard et al. 2017 -> here: m -> kept; none: K - f.
    """

    hostile: float = 0.2
    """Share of the clients that may be hostile."""
    kept: int | None = None
    """Updates that count, K - f at most; none: K - f."""
    weighted: bool = False
    """Do those that count do so as the recipe's weights say? They mostly go by what clients claim."""
    too_few: TooFew = "median"

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
    """The updates in the midst of the others; those that count nothing have no say in who that is."""
    has_say = np.flatnonzero(weights > 0)
    num = len(has_say)
    if num == 0:
        return no_updates(deltas, weights)
    rows = deltas if num == len(deltas) else deltas[has_say]
    num_hostile = math.ceil(hostile * num - 1e-9)  # 0.2 times 5 is 1, not a little more
    if num <= 2 * num_hostile + 2:
        extra_metrics = {"too_few": 1}
        if too_few == "skip":
            return no_updates(deltas, weights, extra_metrics)
        return single_update(weighted_median(rows, np.ones(num)), weights, extra_metrics)
    num_kept = min(num - num_hostile if kept is None else kept, num - num_hostile)
    places = krum(rows, num_hostile, num_kept)
    mine = weights[has_say][places] if weighted else np.ones(len(places))
    left_out = {"left_out": num - len(places)} if len(places) < num else {}
    return CombinedUpdates(rows[places], mine * (weights.sum() / mine.sum()), left_out)
