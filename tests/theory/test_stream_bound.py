import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import (
    effective_samples,
    gradient_variability,
    importance_ratio,
    psi,
    share_distance_bound,
    target_bias,
)
from theory.cases import distributions

SIZES = [10, 30, 30, 30]


# Effective samples


@pytest.mark.parametrize(
    ("importance", "expected"),
    [
        ([0.1, 0.3, 0.3, 0.3], 100),
        ([0.25, 0.75, 0, 0], 40),
        ([0.25, 0.25, 0.25, 0.25], 80),
    ],
)
def test_effective_samples_match_worked_example(importance, expected):  # section 10
    assert effective_samples(importance, SIZES) == pytest.approx(expected, abs=1e-9)


@given(st.data(), st.integers(1, 6))
def test_client_importance_equals_importance_spread_over_its_samples(data: st.DataObject, size):
    p = data.draw(distributions(size))
    sizes = np.array(data.draw(st.lists(st.integers(1, 9), min_size=size, max_size=size)))
    by_client = effective_samples(p, sizes)
    by_sample = effective_samples(np.repeat(p / sizes, sizes))
    assert by_client == pytest.approx(by_sample, rel=1e-12)
    assert by_client <= sizes.sum() * (1 + 1e-12)
    assert effective_samples(sizes, sizes) == pytest.approx(sizes.sum(), rel=1e-12)


@given(st.data(), st.integers(1, 6), st.floats(0.1, 5))
def test_psi_without_fresh_clients_depends_on_effective_samples(data: st.DataObject, size, ratio):
    p, n = data.draw(distributions(size)), np.full(size, 1 / size)
    value = psi(p, n, np.full(size, True), ratio)
    assert value == pytest.approx(ratio * math.sqrt(100 / effective_samples(p, 100 * n)), rel=1e-12)


def test_importance_on_empty_clients_gives_zero_effective_samples():
    assert effective_samples([0.5, 0.5], [3, 0]) == 0.0
    assert effective_samples([1, 0], [3, 0]) == pytest.approx(3)


# The ratio


@pytest.mark.parametrize(
    ("D", "G", "B", "d", "N", "fresh", "expected"),
    [
        (1.0, 5.5, 2.3, 3_353_034, 5e4, 25, 0.381),  # CIFAR-10
        (1.0, 5.5, 2.3, 3_353_034, 5e5, 25, 0.178),
        (1.0, 4.7, 4.6, 3_537_444, 5e4, 25, 0.554),  # CIFAR-100
        (1.0, 4.7, 4.6, 3_537_444, 5e5, 25, 0.309),
        (1.9, 0.4, 0.7, 21, 200, 1, 1.347),  # synthetic
    ],
)
def test_importance_ratios_match_the_paper(D, G, B, d, N, fresh, expected):  # section 5
    assert importance_ratio(D, G, B, d, N, fresh) == pytest.approx(expected, abs=1e-3)


def test_importance_ratio_is_infinite_without_fresh_clients():
    assert importance_ratio(1.0, 1.0, 1.0, 10, 10, 0) == math.inf


def test_importance_ratio_matches_a_hand_computed_value():  # (1 + sqrt(36 / 4)) / (2 * 1 * sqrt(4))
    assert importance_ratio(2.0, 1.0, 1.0, 36, 4, 4) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", ["diameter", "grad_bound", "num_samples"])
def test_zero_constants_are_rejected(name):
    good = {"diameter": 1.0, "grad_bound": 1.0, "loss_bound": 1.0, "num_params": 5}
    good |= {"num_samples": 10, "num_fresh": 2}
    with pytest.raises(ConfigError, match=f"{name} must be positive"):
        importance_ratio(**good | {name: 0})


# Other bounds


def test_target_bias_is_twice_the_weighted_discrepancy():
    assert target_bias([1, 0], [0, 1], 0.5) == pytest.approx(2.0)
    assert target_bias([0.1, 0.2, 0.7], [0.2, 0.2, 0.6], 3) == pytest.approx(1.2)
    assert target_bias([2, 3], [4, 6], 9) == 0.0


@given(st.data(), st.integers(1, 7))
def test_share_distance_stays_below_its_bound(data: st.DataObject, size):
    p, n = data.draw(distributions(size)), data.draw(distributions(size))
    bound = share_distance_bound(p, n)
    assert np.abs(p - n).sum() <= bound + 1e-12
    assert share_distance_bound(n, n) == 0.0
    if (n > 0).all():
        assert bound == pytest.approx(math.sqrt(max((p**2 / n).sum() - 1, 0)), abs=1e-7)


def test_share_distance_bound_is_infinite_for_importance_without_samples():
    assert share_distance_bound([0.5, 0.5], [1, 0]) == math.inf


def test_gradient_variability_matches_a_hand_computed_value():
    full, mixed = [[1, 1], [0, 2], [5, 5]], [[0, 1], [0, 0], [5, 5]]
    # squared distances 1, 4, 0 with weights 1/4, 1/4, 1/2
    assert gradient_variability([1, 1, 2], full, mixed) == pytest.approx(1.25, abs=1e-12)
    assert gradient_variability([1, 1, 2], full, full) == 0.0


@pytest.mark.parametrize(
    ("full", "mixed", "message"),
    [
        ([[1.0], [2.0]], [[1.0, 2.0], [3.0, 4.0]], r"got shapes \(2, 1\) and \(2, 2\)"),
        ([[1.0]], [[1.0]], "must have 2 rows each"),
        ([1.0, 2.0], [1.0, 2.0], "must have 2 rows each"),
        ([[1.0], [2.0]], [[1.0], [float("nan")]], "those of round 1 are not"),
    ],
)
def test_mismatched_gradients_are_rejected(full, mixed, message):
    with pytest.raises(ConfigError, match=message):
        gradient_variability([1, 1], full, mixed)
