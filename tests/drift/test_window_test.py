from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp, ttest_ind

from contracts.alarm import find_alarms
from thalweg.core.errors import ConfigError
from thalweg.drift import WindowTest
from thalweg.drift.window_test import has_larger_mean, is_larger


@pytest.mark.parametrize("test", ["ks", "mean"])
def test_jump_raises_an_alarm_within_the_recent_window(test: Any) -> None:
    rng = np.random.default_rng(1)
    values = np.repeat([0.1, 0.9], 20) + rng.uniform(-0.05, 0.05, 40)
    (found,) = find_alarms(WindowTest(test=test), values.tolist())
    assert 20 < found < 25


@pytest.mark.parametrize("test", ["ks", "mean"])
def test_falling_errors_raise_no_alarm(test: Any) -> None:
    assert find_alarms(WindowTest(test=test), [1.0 - 0.02 * step for step in range(50)]) == []


def test_kolmogorov_smirnov_distances_of_a_worked_example() -> None:
    # Of 10 and 5 values the distance must exceed sqrt(ln(100) / 2 * 15 / 50) = 0.8311.
    before = np.arange(10.0)[None]
    assert is_larger(before, np.array([[8.5] * 5]), 0.01).tolist() == [True]  # 9 of 10 are below
    assert is_larger(before, np.array([[7.5] * 5]), 0.01).tolist() == [False]  # 8 of 10
    assert is_larger(before, np.array([[8.5] * 4 + [0.5]]), 0.01).tolist() == [False]  # 0.7


def test_significant_but_small_rise_raises_no_alarm() -> None:
    values = [0.1] * 10 + [0.12] * 10
    assert find_alarms(WindowTest(rise=0.01), values) == [14]
    assert find_alarms(WindowTest(rise=0.05), values) == []


def test_values_before_both_windows_are_forgotten() -> None:
    """The large errors of an untrained model do not hide a later jump."""
    values = [0.9] * 30 + [0.1] * 15 + [0.6] * 5
    assert find_alarms(WindowTest(), values) == [49]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.floats(-0.5, 1.0))
def test_decisions_equal_those_of_scipy(seed: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    before, new = rng.normal(size=(1, 9)), rng.normal(size=(1, 6)) + shift
    theirs = ttest_ind(new[0], before[0], equal_var=False, alternative="greater").pvalue
    assert has_larger_mean(before, new, 0.05).tolist() == [theirs < 0.05]
    distance = ks_2samp(before[0], new[0], alternative="greater", method="asymp").statistic
    limit = np.sqrt(-np.log(0.05) / 2 * 15 / 54)
    assert is_larger(before, new, 0.05).tolist() == [distance > limit]


def test_constant_windows_are_compared_by_value() -> None:
    same, more = np.full((2, 4), 0.5), np.array([[0.5] * 3, [0.75] * 3])
    assert has_larger_mean(same, more, 0.01).tolist() == [False, True]
    assert is_larger(same, more, 0.2).tolist() == [False, True]


@pytest.mark.parametrize(
    "wrong", [{"reference": 1}, {"recent": 1}, {"significance": 0.0}, {"rise": -1.0}]
)
def test_invalid_fields_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        WindowTest(**wrong)
