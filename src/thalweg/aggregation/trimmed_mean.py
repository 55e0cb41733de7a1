from __future__ import annotations

from dataclasses import dataclass

from thalweg.aggregation.robust import CombinedUpdates, no_updates, rule_weights, single_update
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.theory import trimmed_mean


@dataclass(frozen=True)
class TrimmedMean:
    r"""The mean of the updates, number by number, without the largest and the smallest.

    At either end :math:`\lceil \beta K \rceil` of K updates go, so that a share of :math:`\beta` hostile ones
    does no harm, however few are heard; if nothing is left, as with two, it is the median.

    Symbols, Yin et al. 2018 -> here: :math:`\beta` -> share. There :math:`\beta K` is a whole number.
    """

    share: float = 0.2
    """Of the updates, or of their weight, that goes at either end."""
    weighted: bool = False
    """Does an update count as the recipe's weights say? They mostly go by what clients claim."""

    def __post_init__(self) -> None:
        check_ranges(self, share="[0, 0.5)")

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        if not weights.any():
            return no_updates(deltas, weights)
        mean = trimmed_mean(deltas, rule_weights(weights, self.weighted), self.share)
        return single_update(mean, weights)
