from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.local import Gaussian
from thalweg.theory import gaussian_epsilon

QUIET = Gaussian(clip=5.0, noise=1e-12)


def test_only_updates_longer_than_the_clip_are_shortened() -> None:
    rng = np.random.default_rng(0)
    long, short = np.array([[6, 8]], dtype=np.float32), np.array([[0, 1]], dtype=np.float32)
    np.testing.assert_allclose(QUIET.add_noise(long, rng), [[3, 4]], rtol=1e-6)
    np.testing.assert_allclose(QUIET.add_noise(short, rng), [[0, 1]], atol=1e-6)
    assert long.tolist() == [[6, 8]], "the argument is unchanged"


def test_updates_of_several_models_are_clipped_as_one_vector() -> None:
    deltas = np.array([[6, 0], [0, 8]], dtype=np.float32)  # norm 10 together
    noisy = QUIET.add_noise(deltas, np.random.default_rng(0))
    np.testing.assert_allclose(noisy, [[3, 0], [0, 4]], atol=1e-6)


def test_the_standard_deviation_of_the_noise_is_noise_times_clip() -> None:
    noisy = Gaussian(clip=2.0, noise=3.0).add_noise(
        np.zeros((1, 40_000), dtype=np.float32), np.random.default_rng(0)
    )
    assert noisy.std() == pytest.approx(6.0, rel=0.02)
    assert noisy.dtype == np.float32


def test_a_huge_update_is_clipped_without_overflow() -> None:
    noisy = QUIET.add_noise(np.array([[3e38, 0]], dtype=np.float32), np.random.default_rng(0))
    np.testing.assert_allclose(noisy, [[5, 0]], atol=1e-5)


def test_the_sensitivity_of_an_update_is_twice_the_clip() -> None:
    assert Gaussian(noise=2.0).compute_epsilon(1) == pytest.approx(
        gaussian_epsilon(1e-5, noise=1.0)
    )
    assert Gaussian(clip=9.0, noise=2.0).compute_epsilon(1) == Gaussian(noise=2.0).compute_epsilon(
        1
    )
    assert Gaussian().compute_epsilon(0) == 0
    assert Gaussian().compute_epsilon(10) > Gaussian().compute_epsilon(9)


@pytest.mark.parametrize("field", ["clip", "noise", "delta"])
def test_zero_parameters_are_rejected(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Gaussian(**{field: 0.0})
