from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.streams.drawing import draw_availability, draw_present, draw_rows


@given(size=st.integers(1, 40), count=st.integers(0, 200), seed=st.integers(0, 9))
def test_draw_rows_repeats_a_row_only_after_the_whole_pool(
    size: int, count: int, seed: int
) -> None:
    pool = 100 + 3 * np.arange(size)
    dealt = draw_rows(pool, count, np.random.default_rng(seed))
    assert len(dealt) == count
    assert set(dealt.tolist()) <= set(pool.tolist())
    for start in range(0, count, size):
        lap = dealt[start : start + size]
        assert len(set(lap.tolist())) == len(lap)


@pytest.mark.parametrize("count", [2, 6], ids=["by choice", "by shuffling"])
def test_draw_rows_is_uniform_at_every_position(count: int) -> None:
    pool, trials = np.arange(10), 3000
    seen = np.zeros((count, 10))
    for trial in range(trials):
        seen[np.arange(count), draw_rows(pool, count, np.random.default_rng(trial))] += 1
    # 300 of 3000 each, standard deviation 16.4.
    assert abs(seen - 300).max() < 5 * 16.4


def test_draw_rows_leaves_the_pool_unchanged() -> None:
    pool = np.arange(5)
    draw_rows(pool, 12, np.random.default_rng(0))
    assert pool.tolist() == [0, 1, 2, 3, 4]


def test_present_clients_depend_on_seed_and_round() -> None:
    half = np.full(50, 0.5)
    assert draw_present(half, 3, 7).tolist() == draw_present(half, 3, 7).tolist()
    assert draw_present(half, 3, 7).tolist() != draw_present(half, 3, 8).tolist()
    assert draw_present(half, 3, 7).tolist() != draw_present(half, 4, 7).tolist()


def test_presence_matches_availability_and_is_independent() -> None:
    availability = np.array([1.0, 0.5, 0.2])
    here = np.zeros((2000, 3))
    for rnd in range(2000):
        here[rnd, draw_present(availability, 0, rnd)] = 1
    # Standard deviations 0, 0.011 and 0.009.
    assert abs(here.mean(axis=0) - availability).max() < 5 * 0.011
    assert here[:, 0].all()
    assert abs(np.corrcoef(here[:, 1], here[:, 2])[0, 1]) < 5 / np.sqrt(2000)


def test_drawn_availability_has_the_requested_mean_and_spread() -> None:
    drawn = draw_availability(10_000, 0.2, 0.01, np.random.default_rng(0))
    assert abs(drawn.mean() - 0.2) < 5 * 0.0001
    assert abs(drawn.std() - 0.01) < 5 * 0.00007


def test_drawn_availability_is_clipped_to_0_01_and_1() -> None:
    drawn = draw_availability(1000, 0.5, 10.0, np.random.default_rng(0))
    assert (drawn.min(), drawn.max()) == (0.01, 1.0)


def test_zero_spread_gives_equal_availability() -> None:
    assert draw_availability(3, 0.4, 0.0, np.random.default_rng(0)).tolist() == [0.4, 0.4, 0.4]


def test_a_mean_availability_below_the_usual_lower_limit_is_kept() -> None:
    assert draw_availability(2, 1e-4, 0.0, np.random.default_rng(0)).tolist() == [1e-4, 1e-4]
    assert draw_availability(1000, 1e-4, 1.0, np.random.default_rng(0)).min() == 1e-4
