"""What every rule for late updates promises."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import to_comparable
from thalweg.aggregation import Staleness


def check_staleness(rule: Staleness) -> None:
    """Ask the rule about nobody, one update and many, new and old."""
    written = repr(rule)
    assert rule.max_staleness is None or (
        isinstance(rule.max_staleness, int) and rule.max_staleness >= 0
    ), "a limit, or none"
    for staleness in ([], [0], [3], [0, 0, 1], [*range(65)]):
        _check_factors(rule, np.array(staleness, dtype=np.int64))
    everything = rule.factor(np.arange(65))
    assert (np.diff(everything) <= 0).all(), "the staler, the less"
    order = np.array([5, 0, 2, 64, 2])
    assert rule.factor(order).tolist() == everything[order].tolist(), "each by itself"
    assert repr(rule) == written, "a rule remembers nothing itself"


def _check_factors(rule: Staleness, staleness: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    asked = to_comparable(staleness)
    factors = rule.factor(staleness)
    assert factors.shape == staleness.shape, "one factor per update"
    assert factors.dtype == np.float64, "in double precision"
    assert ((factors >= 0) & (factors <= 1)).all(), "between zero and one"
    assert (factors[staleness == 0] == 1).all(), "what is not late counts in full"
    assert rule.factor(staleness).tolist() == factors.tolist(), "same question, same answer"
    assert to_comparable(staleness) == asked, "what it looks at is untouched"
