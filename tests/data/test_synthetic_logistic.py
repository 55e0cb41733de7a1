from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.data import SyntheticLogistic


def test_clients_have_equal_shares_and_points_fill_the_cube() -> None:
    data = SyntheticLogistic(num_clients=4, num_samples=4000, num_features=3).load(None, seed=1)
    assert np.bincount(data.client).tolist() == [1000] * 4
    assert np.bincount(data.client_test).tolist() == [550] * 4
    assert data.x.dtype == np.float32
    assert abs(data.x).max() <= 1
    # Uniform on [-1, 1]: mean 0, variance 1/3. 12,000 numbers: the mean has deviation 0.0053.
    assert abs(data.x.mean()) < 5 * 0.0053
    assert data.x.var() == pytest.approx(1 / 3, abs=0.02)


def test_labels_follow_the_sign_of_the_common_concept() -> None:
    source = SyntheticLogistic(num_clients=2, num_samples=20_000, num_features=20, spread=0.0)
    data = source.load(None, seed=1)
    # Least squares points in the direction of the concept, and does so for both clients alike.
    slopes = [
        np.linalg.lstsq(data.x[data.client == g], data.y[data.client == g] - 0.5, rcond=None)[0]
        for g in (0, 1)
    ]
    cosine = slopes[0] @ slopes[1] / np.linalg.norm(slopes[0]) / np.linalg.norm(slopes[1])
    assert cosine > 0.98
    predicted = data.x_test @ slopes[0] > 0
    assert (predicted == data.y_test).mean() > 0.75


def test_labels_with_little_noise_are_those_of_the_concept() -> None:
    """With noise 0, a linear rule is right on (almost) all samples; Bernoulli labels are not."""

    def fit_and_test(noise: float | None) -> float:
        source = SyntheticLogistic(num_clients=1, num_samples=20_000, spread=0.0, noise=noise)
        data = source.load(None, seed=1)
        slope = np.linalg.lstsq(data.x, data.y - 0.5, rcond=None)[0]
        return float(((data.x_test @ slope > 0) == data.y_test).mean())

    exact, noisy, bernoulli = fit_and_test(0.0), fit_and_test(0.5), fit_and_test(None)
    assert exact > 0.97
    assert bernoulli < noisy < exact


def test_large_spread_gives_every_client_its_own_concept() -> None:
    source = SyntheticLogistic(num_clients=2, num_samples=20_000, num_features=20, spread=30.0)
    data = source.load(None, seed=1)
    mine, other = data.client == 0, data.client == 1
    slope = np.linalg.lstsq(data.x[mine], data.y[mine] - 0.5, rcond=None)[0]
    right = [((data.x[rows] @ slope > 0) == data.y[rows]).mean() for rows in (mine, other)]
    assert right[0] > 0.9
    theirs = [
        ((data.x_test[rows] @ slope > 0) == data.y_test[rows]).mean()
        for rows in (data.client_test == 0, data.client_test == 1)
    ]
    assert theirs[0] > 0.9
    assert theirs[1] < 0.75
    assert right[1] < 0.75


def test_synthetic_logistic_depends_on_the_seed_only() -> None:
    one, again, other = (SyntheticLogistic().load(None, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.x, again.x)
    np.testing.assert_array_equal(one.y_test, again.y_test)
    assert (one.x != other.x).any()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_clients": 0}, "num_clients must be at least 1, got 0"),
        ({"num_samples": 10}, "num_samples must be at least num_clients=11, got 10"),
        ({"num_test": 0}, "num_test must be at least num_clients=11, got 0"),
        ({"num_features": 0}, "num_features must be at least 1, got 0"),
        ({"spread": -0.1}, "spread must be finite and not negative, got -0.1"),
        ({"spread": float("nan")}, "spread must be finite"),
    ],
)
def test_invalid_synthetic_logistic_options_are_rejected(changes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SyntheticLogistic(**changes)
