from __future__ import annotations

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.local import Gaussian
from thalweg.theory import gaussian_epsilon

QUIET = Gaussian(clip=5.0, noise=1e-12)


def test_what_is_too_long_is_shortened_and_what_is_not_is_left() -> None:
    rng = np.random.default_rng(0)
    long, short = np.array([[6, 8]], dtype=np.float32), np.array([[0, 1]], dtype=np.float32)
    np.testing.assert_allclose(QUIET.add_noise(long, rng), [[3, 4]], rtol=1e-6)
    np.testing.assert_allclose(QUIET.add_noise(short, rng), [[0, 1]], atol=1e-6)
    assert long.tolist() == [[6, 8]], "the client's own stays as it is"


def test_updates_of_several_models_are_one_vector() -> None:
    deltas = np.array([[6, 0], [0, 8]], dtype=np.float32)  # of length 10 together
    hidden = QUIET.add_noise(deltas, np.random.default_rng(0))
    np.testing.assert_allclose(hidden, [[3, 0], [0, 4]], atol=1e-6)


def test_the_noise_is_in_units_of_the_bound() -> None:
    hidden = Gaussian(clip=2.0, noise=3.0).add_noise(
        np.zeros((1, 40_000), dtype=np.float32), np.random.default_rng(0)
    )
    assert hidden.std() == pytest.approx(6.0, rel=0.02)
    assert hidden.dtype == np.float32


def test_an_absurd_update_is_shortened_too() -> None:
    hidden = QUIET.add_noise(np.array([[3e38, 0]], dtype=np.float32), np.random.default_rng(0))
    np.testing.assert_allclose(hidden, [[5, 0]], atol=1e-5)


def test_a_client_may_move_by_twice_the_bound_from_one_set_of_samples_to_another() -> None:
    assert Gaussian(noise=2.0).compute_epsilon(1) == pytest.approx(
        gaussian_epsilon(1e-5, noise=1.0)
    )
    assert Gaussian(clip=9.0, noise=2.0).compute_epsilon(1) == Gaussian(noise=2.0).compute_epsilon(
        1
    )
    assert Gaussian().compute_epsilon(0) == 0
    assert Gaussian().compute_epsilon(10) > Gaussian().compute_epsilon(9)


@pytest.mark.parametrize("field", ["clip", "noise", "delta"])
def test_nothing_is_no_privacy(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Gaussian(**{field: 0.0})
