from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints
from thalweg.streams.splitting import label_prior_pools, split_by_dirichlet, stratified_parts

labels_of_any_mix = st.lists(st.integers(0, 4), min_size=1, max_size=120).map(np.array)


def skew(pools: list[Ints], labels: Ints) -> Floats:
    """(M,) share of the most frequent class in each pool."""
    return np.array([np.bincount(labels[pool]).max() / len(pool) for pool in pools])


@given(labels=labels_of_any_mix, num_parts=st.integers(1, 7), seed=st.integers(0, 9))
def test_stratified_parts_are_disjoint_complete_and_equally_mixed(
    labels: Ints, num_parts: int, seed: int
) -> None:
    parts = stratified_parts(labels, num_parts, np.random.default_rng(seed))
    assert len(parts) == num_parts
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(labels)))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    counts = np.array([np.bincount(labels[part], minlength=5) for part in parts])  # (parts, C)
    assert (counts.max(axis=0) - counts.min(axis=0)).max() <= 1


def test_stratified_parts_draw_rows_at_random() -> None:
    labels = np.zeros(100, dtype=np.int64)
    one, two = (stratified_parts(labels, 2, np.random.default_rng(s))[0].tolist() for s in (0, 1))
    assert sorted(one) != sorted(two)


@given(
    labels=labels_of_any_mix,
    num_states=st.integers(1, 8),
    concentration=st.floats(0.01, 100),
    min_size=st.integers(1, 10),
    seed=st.integers(0, 9),
)
def test_dirichlet_states_are_disjoint_complete_and_not_too_small(
    labels: Ints, num_states: int, concentration: float, min_size: int, seed: int
) -> None:
    rows = 7 * np.arange(len(labels))  # rows of a larger data set
    everything = np.zeros(7 * len(labels), dtype=np.int64)
    everything[rows] = labels
    rng = np.random.default_rng(seed)
    if len(rows) < num_states * min_size:
        with pytest.raises(ConfigError, match=f"cannot give {num_states} states at least"):
            split_by_dirichlet(rows, everything, num_states, concentration, min_size, rng)
        return
    states = split_by_dirichlet(rows, everything, num_states, concentration, min_size, rng)
    assert len(states) == num_states
    assert np.sort(np.concatenate(states)).tolist() == rows.tolist()
    assert min(len(state) for state in states) >= min_size


def test_concentration_controls_the_skew_of_states() -> None:
    labels = np.arange(6000) % 10

    def mean_skew(concentration: float) -> float:
        rng = np.random.default_rng(0)
        states = split_by_dirichlet(np.arange(6000), labels, 10, concentration, 10, rng)
        return float(skew(states, labels).mean())

    # With ten classes the smallest possible share of the largest one is a tenth.
    assert mean_skew(100.0) < 0.2
    assert mean_skew(0.05) > 0.5
    assert mean_skew(0.05) > mean_skew(1.0) > mean_skew(100.0)


def test_state_with_its_fair_share_receives_no_further_class() -> None:
    # Ten classes of 100 and ten states: a state with 100 rows is closed, so a state can have at
    # most 99 rows and one whole class. Without the rule the largest would have about 300.
    labels = np.repeat(np.arange(10), 100)
    for seed in range(10):
        states = split_by_dirichlet(
            np.arange(1000), labels, 10, 0.05, 1, np.random.default_rng(seed)
        )
        assert max(len(state) for state in states) <= 199


@given(
    labels=labels_of_any_mix,
    num_states=st.integers(1, 8),
    concentration=st.floats(0.01, 100),
    min_size=st.integers(1, 10),
)
def test_label_prior_pools_have_equal_sizes(
    labels: Ints, num_states: int, concentration: float, min_size: int
) -> None:
    rows = np.arange(len(labels))
    rng = np.random.default_rng(0)
    pools = label_prior_pools(rows, labels, num_states, concentration, min_size, rng)
    assert [len(pool) for pool in pools] == [max(min_size, len(rows) // num_states)] * num_states
    assert set(np.concatenate(pools).tolist()) <= set(rows.tolist())


def test_small_concentration_makes_label_prior_pools_skewed() -> None:
    labels = np.arange(4000) % 10
    pools = [
        label_prior_pools(np.arange(4000), labels, 20, a, 10, np.random.default_rng(0))
        for a in (0.05, 100.0)
    ]
    assert skew(pools[0], labels).mean() > 0.6
    assert skew(pools[1], labels).mean() < 0.25


def test_splitting_no_rows_is_rejected() -> None:
    nothing: Any = np.empty(0, dtype=np.int64)
    for fill in (split_by_dirichlet, label_prior_pools):
        with pytest.raises(ConfigError, match="fewer clusters"):
            fill(nothing, nothing, 2, 1.0, 1, np.random.default_rng(0))
