from __future__ import annotations

from dataclasses import dataclass

from thalweg.aggregation.robust import CombinedUpdates, no_updates, rule_weights, single_update
from thalweg.core.types import Floats, Floats32
from thalweg.theory import weighted_median


@dataclass(frozen=True)
class Median:
    """The median of the updates, number by number, in the place of their mean.

    Whatever hostile clients send, while they are fewer than half every number lies between two honest ones. What
    only a minority learns is lost, too: with very different clients a median is a poor mean.

    Yin et al. 2018. One or two updates are what they are: there is no middle among them but the mean.
    """

    weighted: bool = False
    """Does an update count as the recipe's weights say? They mostly go by what clients claim, so that a hostile one
    may count as much as it likes; else all count the same."""

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        if not weights.any():
            return no_updates(deltas, weights)
        return single_update(weighted_median(deltas, rule_weights(weights, self.weighted)), weights)
