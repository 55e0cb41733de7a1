from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_memory_context
from thalweg.memory.base import PredictsRenewal, renew, round_count
from thalweg.memory.reservoir import Reservoir


@given(
    capacity=st.integers(1, 20),
    free=st.integers(0, 20),
    num_new=st.integers(0, 40),
    count=st.integers(0, 20),
    seed=st.integers(0, 5),
)
def test_as_many_are_renewed_as_asked_for_arrived_and_fit(
    capacity: int, free: int, num_new: int, count: int, seed: int
) -> None:
    free, count = min(free, capacity), min(count, capacity)
    held = capacity - free
    kept = renew(some_memory_context(capacity, held, num_new), count, np.random.default_rng(seed))
    new = kept[kept >= held]
    assert len(set(kept.tolist())) == len(kept) == min(capacity, held + num_new)
    assert len(new) == min(max(count, free), num_new)
    assert sorted(new.tolist()) == list(range(held, held + len(new))), "the first that arrived"


def test_nothing_to_renew_changes_nothing() -> None:
    assert renew(some_memory_context(5, 5, 5), 0, np.random.default_rng(0)).tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_a_full_refresh_forgets_everything() -> None:
    kept = renew(some_memory_context(5, 5, 9), 5, np.random.default_rng(0))
    assert sorted(kept.tolist()) == [5, 6, 7, 8, 9]


def test_who_is_overwritten_is_drawn_uniformly() -> None:
    lost = np.zeros(10)
    for trial in range(3000):
        kept = renew(some_memory_context(10, 10, 3), 3, np.random.default_rng(trial))
        lost += ~np.isin(np.arange(10), kept)
    # 900 of 3000 each, standard deviation 25.
    assert abs(lost - 900).max() < 5 * 25


@pytest.mark.parametrize(
    ("amount", "whole"), [(0.0, 0), (0.49, 0), (0.5, 1), (2.5, 3), (166.757, 167), (500.0, 500)]
)
def test_halves_are_rounded_up(amount: float, whole: int) -> None:
    assert round_count(amount, None) == whole


def test_rounding_at_random_has_the_right_mean() -> None:
    rng = np.random.default_rng(0)
    drawn = [round_count(2.3, rng) for _ in range(5000)]
    assert set(drawn) == {2, 3}
    # Standard deviation 0.0065.
    assert abs(np.mean(drawn) - 2.3) < 5 * 0.0065


def test_rounding_at_random_leaves_whole_numbers_alone() -> None:
    rng = np.random.default_rng(0)
    assert {round_count(7.0, rng) for _ in range(100)} == {7}


def test_foresight_is_a_matter_of_having_the_method() -> None:
    assert isinstance(Reservoir(), PredictsRenewal)
    assert not isinstance(object(), PredictsRenewal)
