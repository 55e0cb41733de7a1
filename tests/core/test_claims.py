"""Checks of values that clients send."""

from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.claims import check_vector, first_reason


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([1.0, 2.0], None),
        ([1.0], "x has 1 numbers, not 2."),
        ([1.0, np.nan], "x is not finite."),
        ([1.0, 11.0], "x goes from 1 to 11, but only 0 to 10 is possible."),
    ],
)
def test_check_vector_rejects_wrong_lengths_and_values(
    values: list[float], why: str | None
) -> None:
    assert check_vector({"x": np.array(values)}, "x", 2, 0, 10) == why


def test_check_vector_rejects_missing_and_accepts_empty_vectors() -> None:
    assert check_vector({}, "x") == "x is missing."
    assert check_vector({"x": np.empty((2, 0))}, "x", least=0) is None


def test_first_reason_returns_the_first_that_is_not_none() -> None:
    assert first_reason(None, "this", "that") == "this"
    assert first_reason(None, None) is None
