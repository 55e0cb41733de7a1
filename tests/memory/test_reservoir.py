from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_memory_context
from thalweg.memory import Reservoir
from thalweg.memory.reservoir import ReservoirState


class FixedIntegers:
    """A random generator that returns given integers."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = np.array(numbers)

    def integers(self, low: int, high: Any) -> Any:
        assert (self.numbers < high).all()
        return self.numbers


def kept_of_stream(start: int, arrivals: list[int], capacity: int, seed: int) -> list[int]:
    """Return the samples in memory at the end, numbered in order of arrival."""
    policy, rng = Reservoir(), np.random.default_rng(seed)
    memory, state, arrived = np.arange(start), policy.init(capacity, start), start
    for num_new in arrivals:
        state, kept = policy.keep(state, some_memory_context(capacity, len(memory), num_new), rng)
        memory = np.concatenate([memory, arrived + np.arange(num_new)])[kept]
        arrived += num_new
    assert state == ReservoirState(arrived)
    return [int(item) for item in memory]


@pytest.mark.parametrize(
    ("start", "arrivals"),
    [(0, [100]), (0, [3, 20, 0, 76, 1]), (10, [45, 45]), (4, [2, 2, 2, 90])],
    ids=str,
)
def test_old_and_new_samples_are_kept_with_equal_probability(
    start: int, arrivals: list[int]
) -> None:
    times_kept = np.zeros(100)
    for trial in range(2000):
        times_kept[kept_of_stream(start, arrivals, 10, trial)] += 1
    # Each is kept with probability 0.1: 200 of 2000 trials, standard deviation 13.4.
    assert abs(times_kept - 200).max() < 5 * 13.4


def test_pairs_of_samples_are_kept_with_the_probability_of_a_uniform_subset() -> None:
    together = sum({50, 51} <= set(kept_of_stream(0, [60, 40], 10, trial)) for trial in range(4000))
    # A pair stays with probability 10/100 * 9/99 = 1/110: 36 of 4000, standard deviation 6.
    assert abs(together - 36) < 5 * 6


@given(capacity=st.integers(1, 12), arrivals=st.lists(st.integers(0, 20), max_size=6))
def test_the_memory_is_filled_up_to_its_capacity(capacity: int, arrivals: list[int]) -> None:
    kept = kept_of_stream(0, arrivals, capacity, seed=0)
    assert len(kept) == min(capacity, sum(arrivals))


def test_free_slots_are_filled_in_order_before_a_sample_is_overwritten() -> None:
    assert kept_of_stream(2, [3, 3], capacity=8, seed=0) == list(range(8))


def test_later_samples_of_one_arrival_overwrite_earlier_ones() -> None:
    # Three new samples at a full memory of two: the first two both draw slot 0, the third misses.
    rng: Any = FixedIntegers([0, 0, 4])
    state, kept = Reservoir().keep(ReservoirState(2), some_memory_context(2, 2, 3), rng)
    assert kept.tolist() == [3, 1]
    assert state == ReservoirState(5)


def test_the_predicted_renewal_shrinks_as_more_samples_are_seen() -> None:
    policy = Reservoir()
    context = some_memory_context(10, 10, 10)
    assert policy.predict_renewal(ReservoirState(10), context).tolist() == [0.5] * 3
    assert policy.predict_renewal(ReservoirState(90), context).tolist() == [0.1] * 3
    assert (
        policy.predict_renewal(ReservoirState(0), some_memory_context(10, 0, 0)).tolist()
        == [0.0] * 3
    )
