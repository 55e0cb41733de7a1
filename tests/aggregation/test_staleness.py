from __future__ import annotations

import numpy as np
import pytest

from thalweg.aggregation import Constant, Hinge, Polynomial, Refuse, Staleness
from thalweg.core.errors import ConfigError

ROUNDS = np.array([0, 1, 2, 3, 8])


@pytest.mark.parametrize(
    ("rule", "factors"),
    [
        (Refuse(), [1, 0, 0, 0, 0]),
        (Constant(), [1, 1, 1, 1, 1]),
        (Constant(0.25), [1, 0.25, 0.25, 0.25, 0.25]),
        (Polynomial(), [1, 0.707107, 0.577350, 0.5, 0.333333]),
        (Polynomial(power=1.0), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 9]),
        (Polynomial(power=0.0), [1, 1, 1, 1, 1]),
        (Hinge(after=2, slope=0.5), [1, 1, 1, 1 / 1.5, 1 / 4]),
        (Hinge(after=0, slope=10.0), [1, 1 / 11, 1 / 21, 1 / 31, 1 / 81]),
    ],
)
def test_what_late_updates_count(rule: Staleness, factors: list[float]) -> None:
    assert rule.factor(ROUNDS) == pytest.approx(factors, abs=1e-6)


def test_who_refuses_waits_for_nobody_and_the_others_as_long_as_they_are_told() -> None:
    assert Refuse().most == 0
    assert Polynomial().most is None
    assert Hinge(most=3).most == 3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Polynomial(power=-1), "power must not be negative"),
        (lambda: Polynomial(most=0), "most must be at least 1, or none, got 0"),
        (lambda: Constant(1.5), r"share must lie in \[0, 1\]"),
        (lambda: Hinge(slope=float("nan")), "slope must not be negative"),
        (lambda: Hinge(after=-1), "after must not be negative"),
    ],
)
def test_impossible_rules_are_refused(make: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()  # type: ignore[operator]
