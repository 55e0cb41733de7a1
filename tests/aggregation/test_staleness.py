from __future__ import annotations

import numpy as np
import pytest

from thalweg.aggregation import (
    ConstantDiscount,
    HingeDiscount,
    PolynomialDiscount,
    RejectLate,
    Staleness,
)
from thalweg.core.errors import ConfigError

ROUNDS = np.array([0, 1, 2, 3, 8])


@pytest.mark.parametrize(
    ("rule", "factors"),
    [
        (RejectLate(), [1, 0, 0, 0, 0]),
        (ConstantDiscount(), [1, 1, 1, 1, 1]),
        (ConstantDiscount(0.25), [1, 0.25, 0.25, 0.25, 0.25]),
        (PolynomialDiscount(), [1, 0.707107, 0.577350, 0.5, 0.333333]),
        (PolynomialDiscount(power=1.0), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 9]),
        (PolynomialDiscount(power=0.0), [1, 1, 1, 1, 1]),
        (HingeDiscount(after=2, slope=0.5), [1, 1, 1, 1 / 1.5, 1 / 4]),
        (HingeDiscount(after=0, slope=10.0), [1, 1 / 11, 1 / 21, 1 / 31, 1 / 81]),
    ],
)
def test_factors_of_late_updates(rule: Staleness, factors: list[float]) -> None:
    assert rule.factor(ROUNDS) == pytest.approx(factors, abs=1e-6)


def test_maximum_staleness_of_each_rule() -> None:
    assert RejectLate().max_staleness == 0
    assert PolynomialDiscount().max_staleness is None
    assert HingeDiscount(max_staleness=3).max_staleness == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PolynomialDiscount(power=-1), "power must not be negative"),
        (
            lambda: PolynomialDiscount(max_staleness=0),
            "max_staleness must be at least 1, or none, got 0",
        ),
        (lambda: ConstantDiscount(1.5), r"share must lie in \[0, 1\]"),
        (lambda: HingeDiscount(slope=float("nan")), "slope must not be negative"),
        (lambda: HingeDiscount(after=-1), "after must not be negative"),
    ],
)
def test_invalid_fields_are_rejected(make: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()  # type: ignore[operator]
