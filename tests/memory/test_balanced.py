from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.examples import some_memory_context
from thalweg.core.errors import ConfigError
from thalweg.core.types import Ints
from thalweg.memory import Balanced, make_context
from thalweg.memory.balanced import BalancedState, choose_balanced

FIXED = np.random.default_rng(0)


def keep_stream(
    policy: Balanced, labels: Sequence[int], capacity: int, sizes: Sequence[int], seed: int = 0
) -> Ints:
    """Return the samples in memory after arrivals of some sizes, numbered in order of arrival."""
    rng, everything = np.random.default_rng(seed), np.array(labels)
    state, memory, arrived = policy.init(capacity, 0), np.empty(0, dtype=np.int64), 0
    for size in sizes:
        new = np.arange(arrived, arrived + size)
        context = make_context(
            capacity,
            len(memory),
            size,
            held_labels=everything[memory].tolist(),
            new_labels=everything[new].tolist(),
        )
        state, kept = policy.keep(state, context, rng)
        memory, arrived = np.concatenate([memory, new])[kept], arrived + size
    return memory


def count(labels: Sequence[int], kept: Ints) -> list[int]:
    return np.bincount(np.array(labels)[kept]).tolist()


def test_classes_have_equal_counts_and_unused_capacity_is_redistributed() -> None:
    labels = np.repeat([0, 1, 2], [9, 2, 9])
    scores = np.arange(20.0)
    # Quotas of 10 / 3; class 1 fills 2, so that 8 remain for two classes.
    assert count(labels.tolist(), choose_balanced(labels, scores, 10)) == [4, 2, 4]
    # One slot is left after 3 samples of each: it goes to the class with the best next sample.
    assert count(labels.tolist(), choose_balanced(labels, scores, 9)) == [3, 2, 4]
    assert count(labels.tolist(), choose_balanced(labels, -scores, 9)) == [4, 2, 3]


def test_fewer_slots_than_classes_go_to_the_best_samples() -> None:
    labels, scores = np.array([0, 1, 1, 2]), np.array([1.0, 0.0, 2.0, 3.0])
    assert choose_balanced(labels, scores, 2).tolist() == [2, 3]


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 30), st.integers(0, 2**20)
)
def test_counts_are_as_equal_as_possible(labels: list[int], capacity: int, seed: int) -> None:
    scores = np.random.default_rng(seed).random(len(labels))
    kept = choose_balanced(np.array(labels), scores, capacity)
    assert len(kept) == min(capacity, len(labels))
    available, counts = np.bincount(labels), np.bincount(np.array(labels)[kept], minlength=5)
    for c, number in enumerate(counts[: len(available)]):
        # No class has two samples more than a class that could have had more.
        assert number == available[c] or number >= counts.max() - 1


def test_without_half_life_the_whole_past_of_a_class_is_equally_likely() -> None:
    policy, labels = Balanced(half_life=None), [0] * 40 + [1] * 4
    uses = np.zeros(44)
    for seed in range(2000):
        uses[keep_stream(policy, labels, 8, [10, 10, 10, 14], seed)] += 1
    assert (uses[40:] == 2000).all(), "the rare class has its quota of 4"
    # Each of 40 samples is kept with probability 0.1: 200 times, standard deviation 13.4. The
    # first 30 samples once filled the memory alone, which does not change their probability.
    assert abs(uses[:40] - 200).max() < 5 * 13.4


def test_weights_halve_with_each_half_life() -> None:
    # With a capacity of one, the sample is drawn with its weight: the last 20 of 40 samples have
    # twice the weight of the first 20 if 20 arrivals are a half-life.
    policy = Balanced(half_life=20.0)
    late = [keep_stream(policy, [0] * 40, 1, [7, 33], seed)[0] >= 20 for seed in range(3000)]
    assert abs(np.mean(late) - 2 / 3) < 5 * np.sqrt(2 / 9 / 3000)


def test_short_half_life_keeps_the_newest_samples_of_each_class() -> None:
    policy, labels = Balanced(half_life=1e-3), [0, 1] * 10
    for sizes in ([20], [3, 0, 17], [1] * 20):
        assert keep_stream(policy, labels, 6, sizes).tolist() == [14, 15, 16, 17, 18, 19]


def test_state_has_a_score_for_each_held_sample() -> None:
    policy, context = Balanced(), some_memory_context(8, 5, 30)
    state, kept = policy.keep(policy.init(8, 5), context, np.random.default_rng(0))
    assert (state.arrived, len(state.scores), len(kept)) == (35, 8, 8)
    assert len(state.targets) == 0, "targets are for regressions"


def test_quiet_tick_changes_nothing() -> None:
    policy = Balanced()
    state, _ = policy.keep(policy.init(4, 4), some_memory_context(4, 4, 3), FIXED)
    following, kept = policy.keep(state, some_memory_context(4, 4, 0), np.random.default_rng(1))
    assert kept.tolist() == [0, 1, 2, 3]
    assert following.scores.tolist() == state.scores.tolist()


def test_regression_has_quotas_per_quantile_of_all_targets_so_far() -> None:
    policy = Balanced(half_life=1e-3, bins=2)
    # The past had targets 1 to 4 equally often, so that the bins are split at 2.5.
    state = BalancedState(40, np.zeros(4), np.repeat([1.0, 2.0, 3.0, 4.0], 10), np.zeros(40))
    context = make_context(4, 4, 4, held_targets=[1, 1, 4, 4], new_targets=[3, 3, 4, 3])
    _, kept = policy.keep(state, context, np.random.default_rng(0))
    assert kept.tolist() == [0, 1, 6, 7], "both low ones, and the newest two of the high ones"


def test_regression_keeps_a_bounded_sample_of_targets() -> None:
    policy, state, rng = Balanced(), Balanced().init(10, 0), np.random.default_rng(0)
    for tick in range(3):
        held = min(10, 300 * tick)
        context = make_context(
            10, held, 300, held_targets=[0.0] * held, new_targets=np.arange(300.0).tolist()
        )
        state, _ = policy.keep(state, context, rng)
    assert len(state.targets) == len(state.target_keys) == 500
    assert state.target_keys.max() < 1
    assert abs(state.targets.mean() - 149.5) < 5 * 86.6 / np.sqrt(500)


def test_several_targets_count_as_their_mean() -> None:
    policy = Balanced(half_life=1e-3, bins=2)
    state = BalancedState(4, np.zeros(2), np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(4))
    targets = np.array([[0, 2], [8, 0], [1, 7]], dtype=np.float32)  # means 1, 4 and 4
    context = make_context(2, 2, 1)._replace(held_targets=targets[:2], new_targets=targets[2:])
    assert policy.keep(state, context, np.random.default_rng(0))[1].tolist() == [0, 2]


def test_invalid_fields_are_rejected() -> None:
    with pytest.raises(ConfigError, match="half_life"):
        Balanced(half_life=0.0)
    with pytest.raises(ConfigError, match="bins"):
        Balanced(bins=0)
