from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_memory_context
from thalweg.memory import PredictsRenewal, Reservoir, renew
from thalweg.memory.base import round_count, split_slots, take_per_class


@given(
    capacity=st.integers(1, 20),
    free=st.integers(0, 20),
    num_new=st.integers(0, 40),
    count=st.integers(0, 20),
    seed=st.integers(0, 5),
)
def test_renew_keeps_the_first_new_samples_up_to_count_arrivals_and_capacity(
    capacity: int, free: int, num_new: int, count: int, seed: int
) -> None:
    free, count = min(free, capacity), min(count, capacity)
    held = capacity - free
    kept = renew(some_memory_context(capacity, held, num_new), count, np.random.default_rng(seed))
    new = kept[kept >= held]
    assert len(set(kept.tolist())) == len(kept) == min(capacity, held + num_new)
    assert len(new) == min(max(count, free), num_new)
    assert sorted(new.tolist()) == list(range(held, held + len(new))), "the first arrivals"


def test_renewing_zero_samples_keeps_the_memory_unchanged() -> None:
    kept = renew(some_memory_context(5, 5, 5), 0, np.random.default_rng(0))
    assert kept.tolist() == [0, 1, 2, 3, 4]


def test_renewing_the_whole_memory_keeps_only_new_samples() -> None:
    kept = renew(some_memory_context(5, 5, 9), 5, np.random.default_rng(0))
    assert sorted(kept.tolist()) == [5, 6, 7, 8, 9]


def test_overwritten_samples_are_chosen_uniformly() -> None:
    times_lost = np.zeros(10)
    for trial in range(3000):
        kept = renew(some_memory_context(10, 10, 3), 3, np.random.default_rng(trial))
        times_lost += ~np.isin(np.arange(10), kept)
    # 900 of 3000 each, standard deviation 25.
    assert abs(times_lost - 900).max() < 5 * 25


@pytest.mark.parametrize(
    ("amount", "whole"), [(0.0, 0), (0.49, 0), (0.5, 1), (2.5, 3), (166.757, 167), (500.0, 500)]
)
def test_counts_are_rounded_to_the_nearest_integer_halves_up(amount: float, whole: int) -> None:
    assert round_count(amount, None) == whole


def test_stochastic_rounding_has_the_right_mean() -> None:
    rng = np.random.default_rng(0)
    drawn = [round_count(2.3, rng) for _ in range(5000)]
    assert set(drawn) == {2, 3}
    # Standard deviation 0.0065.
    assert abs(np.mean(drawn) - 2.3) < 5 * 0.0065


def test_stochastic_rounding_keeps_whole_numbers() -> None:
    rng = np.random.default_rng(0)
    assert {round_count(7.0, rng) for _ in range(100)} == {7}


def test_a_policy_with_predict_renewal_is_a_predicts_renewal() -> None:
    assert isinstance(Reservoir(), PredictsRenewal)
    assert not isinstance(object(), PredictsRenewal)


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=6),
    st.lists(st.floats(0, 1), min_size=6, max_size=6),
    st.data(),
)
def test_all_slots_are_filled_within_the_available_counts(
    available: list[int], shares: list[float], data: st.DataObject
) -> None:
    num_slots = data.draw(st.integers(0, sum(available)))
    counts = split_slots(np.array(shares[: len(available)]), np.array(available), num_slots)
    assert counts.sum() == num_slots
    assert (counts >= 0).all()
    assert (counts <= available).all()


def test_leftover_slots_go_to_the_largest_remainders() -> None:
    assert split_slots(np.array([0.55, 0.25, 0.2]), np.array([9, 9, 9]), 3).tolist() == [2, 1, 0]


def test_slots_that_a_class_cannot_fill_go_to_the_others() -> None:
    equal = np.array([0.25, 0.25, 0.0, 0.25])
    assert split_slots(equal, np.array([9, 1, 0, 9]), 9).tolist() == [4, 1, 0, 4]


def test_take_per_class_prefers_samples_that_come_first_in_the_order() -> None:
    labels, order = np.array([1, 0, 1, 0, 1]), np.array([4, 3, 2, 1, 0])
    assert take_per_class(order, labels, np.array([1, 2])).tolist() == [2, 3, 4]
    assert take_per_class(order, labels, np.array([0, 0])).tolist() == []
