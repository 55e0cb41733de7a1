from __future__ import annotations

import numpy as np
import pytest

from contracts.examples import some_roster
from thalweg.core.errors import ConfigError
from thalweg.selection import Uniform


def chosen(fraction: float, present: range, seed: int = 0) -> list[int]:
    roster = some_roster(present, 20)
    return [int(n) for n in Uniform(fraction).choose(roster, np.random.default_rng(seed))]


@pytest.mark.parametrize(
    ("fraction", "num_present", "size"),
    [(0.3, 10, 3), (0.5, 10, 5), (1.0, 10, 10), (0.01, 10, 1), (0.3, 1, 1), (0.3, 0, 0)],
)
def test_the_cohort_is_a_fraction_of_the_present_clients_at_least_one(
    fraction: float, num_present: int, size: int
) -> None:
    assert len(chosen(fraction, range(num_present))) == size


def test_chosen_clients_are_in_ascending_order() -> None:
    for seed in range(20):
        cohort = chosen(0.5, range(0, 20, 2), seed)
        assert cohort == sorted(cohort)


def test_present_clients_are_chosen_with_equal_probability() -> None:
    times = np.zeros(20)
    for seed in range(3000):
        times[chosen(0.3, range(0, 20, 2), seed)] += 1
    assert (times[1::2] == 0).all()
    # 900 of 3000 each, standard deviation 25.
    assert abs(times[::2] - 900).max() < 5 * 25


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5, float("nan")])
def test_an_invalid_fraction_is_rejected(fraction: float) -> None:
    with pytest.raises(ConfigError, match="fraction must lie in"):
        Uniform(fraction)
