from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from thalweg.core.errors import DataError
from thalweg.data.features import apply_scale, find_unusable, fit_scale, split_features

finite = st.floats(-1e6, 1e6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39, -1e300])
def test_find_unusable_returns_the_first_non_finite_index(value: float) -> None:
    x = np.zeros((4, 3))
    assert find_unusable(x) is None
    x[2, 1] = x[3, 0] = value
    assert find_unusable(x) == (2, 1)


@settings(deadline=None)
@given(arrays(np.float64, (6, 2), elements=finite))
def test_standardised_training_part_has_mean_0_and_std_1_or_0(x) -> None:
    train = apply_scale(x, fit_scale(x))
    varies = x.std(axis=0) > 1e-6 * (1 + abs(x).max(axis=0))
    assert abs(train.mean(axis=0)[varies]).max(initial=0.0) < 1e-6
    assert abs(train.std(axis=0)[varies] - 1).max(initial=0.0) < 1e-6


def test_part_uses_the_scale_of_the_training_part() -> None:
    test = apply_scale(np.array([[1.0], [4.0]]), fit_scale(np.array([[0.0], [2.0]])))
    assert test.tolist() == [[0.0], [3.0]]


def test_constant_column_is_not_divided_by_its_rounding_error() -> None:
    train = np.full((10, 1), 0.1)  # the mean of ten times 0.1 is not exactly 0.1
    scale = fit_scale(train)
    assert apply_scale(train, scale).tolist() == [[0.0]] * 10
    assert apply_scale(np.array([[0.6]]), scale).tolist() == [[0.5]]


def test_tiny_standard_deviation_counts_as_constant() -> None:
    x = np.array([[0.0], [1e-200]])
    assert np.isfinite(apply_scale(x, fit_scale(x))).all()


def test_nearly_constant_training_column_is_rejected_with_its_name() -> None:
    x = np.array([[0.0, 0.0], [0.0, 1e-150], [0.0, 1e30]])
    train, test = np.array([0, 1]), np.array([2])
    with pytest.raises(DataError, match="toy: 'b' hardly varies in the training part"):
        split_features(x, train, test, standardise=True, names=["a", "b"], where="toy")
    _, far, scale = split_features(x, train, test, standardise=False, names=["a", "b"], where="toy")
    assert far.dtype == np.float32
    assert far[0, 1] == np.float32(1e30)
    assert scale is None
