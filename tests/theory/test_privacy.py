from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.theory import gaussian_delta, gaussian_epsilon


def test_delta_at_zero_epsilon_is_the_total_variation() -> None:
    # Total variation of N(0, 1) and N(1, 1): 2 Phi(1/2) - 1.
    assert gaussian_delta(0.0, noise=1.0) == pytest.approx(0.3829249, abs=1e-7)


@given(st.floats(0.3, 50), st.integers(1, 1000), st.floats(1e-9, 0.1))
def test_epsilon_and_delta_are_inverse(noise: float, releases: int, delta: float) -> None:
    epsilon = gaussian_epsilon(delta, noise, releases)
    assert gaussian_delta(epsilon, noise, releases) <= delta
    if epsilon > 1e-6:
        assert gaussian_delta(epsilon * 0.999, noise, releases) > delta


def test_epsilon_is_below_the_classical_bound() -> None:
    # sigma = sqrt(2 ln(1.25 / delta)) / epsilon is enough for epsilon below 1.
    noise = math.sqrt(2 * math.log(1.25 / 1e-5)) / 0.5
    assert gaussian_epsilon(1e-5, noise) < 0.5


def test_four_releases_cost_as_much_as_one_with_half_the_noise() -> None:
    assert gaussian_epsilon(1e-5, 2.0, releases=4) == pytest.approx(gaussian_epsilon(1e-5, 1.0))


def test_twice_the_distance_needs_twice_the_noise() -> None:
    assert gaussian_epsilon(1e-5, 2.0, distance=2.0) == pytest.approx(gaussian_epsilon(1e-5, 1.0))


def test_epsilon_is_zero_without_releases_and_infinite_without_noise() -> None:
    assert gaussian_epsilon(1e-5, 1.0, releases=0) == 0
    assert gaussian_epsilon(1e-5, 0.0) == math.inf
    assert gaussian_epsilon(1e-5, 1e-9) == math.inf
    assert gaussian_epsilon(0.9, 1.0) == 0, "a delta that large hides anything"


def test_invalid_privacy_inputs_are_rejected() -> None:
    with pytest.raises(ConfigError, match="delta must lie in"):
        gaussian_epsilon(0.0, 1.0)
    with pytest.raises(ConfigError, match="noise must be positive"):
        gaussian_delta(1.0, -1.0)
