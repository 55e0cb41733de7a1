from __future__ import annotations

import math

import numpy as np
import pytest

from thalweg.core import noise
from thalweg.core.noise import SimulatedNoise, SystemGenerator, SystemNoise

SIZE = 40_000


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The words that the operating system returns."""
    words: list[int] = []

    def urandom(number: int) -> bytes:
        assert number == 8 * len(words)
        return np.array(words, dtype=np.uint64).tobytes()

    monkeypatch.setattr(noise.os, "urandom", urandom)
    return words


def test_numbers_of_the_system_generator_follow_from_the_words_of_the_system(
    words: list[int],
) -> None:
    words += [0, 1 << 63, (1 << 64) - 1]
    rng = SystemGenerator()
    smallest = 2.0**-53
    assert rng.random(3).tolist() == [smallest, 0.5 + smallest, 1 - smallest]
    normal = rng.standard_normal(3)
    assert normal[0] == pytest.approx(-8.2095, abs=1e-4)  # the quantile of 2^-53
    assert normal[2] == pytest.approx(8.2095, abs=1e-4)
    laplace = rng.laplace(1.0, 2.0, 3)  # the extreme ones are 1 -+ 2 * 52 ln 2
    assert laplace[0] == pytest.approx(1 - 104 * math.log(2))
    assert laplace[2] == pytest.approx(1 + 104 * math.log(2))
    assert abs(laplace[1] - 1.0) < 1e-12


def test_quartiles_of_the_distributions(words: list[int]) -> None:
    words += [1 << 62, 3 << 62]
    rng = SystemGenerator()
    assert rng.standard_normal(2) == pytest.approx([-0.67449, 0.67449], abs=1e-5)
    assert rng.laplace(0.0, 1.0, 2) == pytest.approx([-math.log(2), math.log(2)])


def test_moments_of_the_distributions() -> None:
    rng = SystemGenerator()
    # Standard errors of the means: 0.0014, 0.005, 0.007; of the variances: 0.0004, 0.007, 0.022.
    for values, mean, variance in (
        (rng.random(SIZE), 0.5, 1 / 12),
        (rng.standard_normal(SIZE), 0.0, 1.0),
        (rng.laplace(0.0, 1.0, SIZE), 0.0, 2.0),
    ):
        assert values.dtype == np.float64
        assert values.mean() == pytest.approx(mean, abs=0.05)
        assert values.var() == pytest.approx(variance, abs=0.15)


def test_no_numbers() -> None:
    assert SystemGenerator().standard_normal(0).shape == (0,)


def test_simulations_use_the_seeded_generator_and_devices_never_do() -> None:
    seeded = np.random.default_rng(0)
    assert SimulatedNoise().choose_generator(seeded) is seeded
    assert SimulatedNoise().is_simulated
    assert isinstance(SystemNoise().choose_generator(seeded), SystemGenerator)
    assert not SystemNoise().is_simulated
