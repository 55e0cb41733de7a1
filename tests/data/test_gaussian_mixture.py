from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.data import GaussianMixture


def test_rotation_by_one_class_moves_each_mean_to_the_next() -> None:
    source = GaussianMixture(num_classes=4, turns=0.25)
    np.testing.assert_allclose(source.means(1.0), np.roll(source.means(0.0), -1, axis=0), atol=1e-9)
    np.testing.assert_allclose(source.means(0.0)[1], [0.0, 2.0], atol=1e-9)


def test_samples_lie_around_the_means_of_their_time() -> None:
    source = GaussianMixture(num_samples=8000, turns=0.5, noise=0.1)
    data = source.load(None, seed=3)
    assert data.time is not None
    for start, end in ((0, 400), (7600, 8000)):
        middle = float(data.time[start:end].mean())
        for c in range(4):
            mine = data.x[start:end][data.y[start:end] == c]  # about 100 of them
            # The mean moves by 0.16 over the stretch; the error of the mean is 0.01.
            np.testing.assert_allclose(mine.mean(axis=0), source.means(middle)[c], atol=0.08)


def test_sample_times_increase_from_0_to_below_1() -> None:
    time = GaussianMixture(num_samples=10).load(None, seed=0).time
    np.testing.assert_allclose(time, np.arange(10) / 10)


def test_extra_features_are_noise() -> None:
    data = GaussianMixture(num_features=5, noise=0.5).load(None, seed=0)
    assert data.x[:, 2:].std() == pytest.approx(0.5, abs=0.01)
    assert abs(data.x[:, 2:].mean()) < 0.02


def test_samples_can_be_drawn_from_the_end() -> None:
    source = GaussianMixture(turns=0.25, noise=0.01, test_at="end")
    data = source.load(None, seed=0)
    np.testing.assert_allclose(data.x_test, source.means(1.0)[data.y_test], atol=0.06)


def test_samples_are_drawn_from_all_times_by_default() -> None:
    source = GaussianMixture(turns=0.25, noise=0.01)
    data = source.load(None, seed=0)
    first = data.x_test[data.y_test == 0]
    angle = np.arctan2(first[:, 1], first[:, 0])  # uniform on [0, pi / 2]
    assert angle.mean() == pytest.approx(np.pi / 4, abs=0.1)
    assert np.ptp(angle) > 1.4


def test_clients_get_equal_random_shares_or_no_groups() -> None:
    assert GaussianMixture().load(None, seed=0).client is None
    group = GaussianMixture(num_samples=1000, num_clients=8).load(None, seed=0).client
    assert group is not None
    assert np.bincount(group).tolist() == [125] * 8
    assert group[:16].tolist() != [*range(8), *range(8)]


def test_gaussian_mixture_depends_on_the_seed_only() -> None:
    one, again, other = (GaussianMixture(num_samples=50).load(None, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.x, again.x)
    assert (one.x != other.x).any()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_samples": 0}, "num_samples must be at least 1, got 0"),
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
        ({"num_features": 1}, "num_features must be at least 2, got 1"),
        ({"num_test": 0}, "num_test must be at least 1, got 0"),
        ({"radius": 0.0}, "radius must be positive and finite, got 0.0"),
        ({"noise": float("inf")}, "noise must be positive and finite, got inf"),
        ({"turns": float("nan")}, "turns must be finite, got nan"),
        ({"num_clients": 0}, "num_clients must be none or lie in 1"),
        ({"test_at": "ende"}, "Did you mean 'end'"),
    ],
)
def test_invalid_gaussian_mixture_options_are_rejected(changes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GaussianMixture(**changes)
