"""Contract of staleness rules."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import to_comparable
from thalweg.aggregation import Staleness


def check_staleness(rule: Staleness) -> None:
    """Check the factors of no, one and many updates, new and late."""
    fields = repr(rule)
    assert rule.max_staleness is None or (
        isinstance(rule.max_staleness, int) and rule.max_staleness >= 0
    ), "max_staleness is an integer or None"
    for staleness in ([], [0], [3], [0, 0, 1], [*range(65)]):
        _check_factors(rule, np.array(staleness, dtype=np.int64))
    everything = rule.factor(np.arange(65))
    assert (np.diff(everything) <= 0).all(), "factors do not increase with staleness"
    order = np.array([5, 0, 2, 64, 2])
    assert rule.factor(order).tolist() == everything[order].tolist(), (
        "factors are independent of each other"
    )
    assert repr(rule) == fields, "a rule object does not change"


def _check_factors(rule: Staleness, staleness: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    arguments = to_comparable(staleness)
    factors = rule.factor(staleness)
    assert factors.shape == staleness.shape, "one factor per update"
    assert factors.dtype == np.float64, "factors are in double precision"
    assert ((factors >= 0) & (factors <= 1)).all(), "factors lie between zero and one"
    assert (factors[staleness == 0] == 1).all(), "the factor of a new update is one"
    assert rule.factor(staleness).tolist() == factors.tolist(), "equal arguments give equal results"
    assert to_comparable(staleness) == arguments, "arguments do not change"
