from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.labelled_context import some_context
from thalweg.core.errors import ConfigError
from thalweg.selection import (
    COUNTERS,
    CumulativeCounter,
    DecayCounter,
    MemoryCounter,
    WindowCounter,
)

BATCHES = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=8)


def counted(counter: Any, batches: list[list[int]], held: list[int] | None = None) -> list[float]:
    """Return the histogram (C,) after some batches, at a client that holds some samples."""
    label_counts = counter.init(3)
    for labels in batches:
        label_counts = counter.count_labels(label_counts, np.array(labels, dtype=np.int64))
    histogram = counter.histogram(label_counts, some_context(held or [], num_classes=3))
    assert histogram.dtype == np.float64
    return [float(count) for count in histogram]


def flat(batches: list[list[int]]) -> list[int]:
    return [label for labels in batches for label in labels]


def bins(labels: list[int]) -> list[float]:
    return [float(labels.count(c)) for c in range(3)]


@given(batches=BATCHES)
def test_the_cumulative_counter_counts_all_arrivals(batches: list[list[int]]) -> None:
    assert counted(CumulativeCounter(), batches, held=[0, 0]) == bins(flat(batches))


@given(batches=BATCHES, size=st.integers(1, 10))
def test_the_window_counter_counts_the_last_labels_for_any_batching(
    batches: list[list[int]], size: int
) -> None:
    assert counted(WindowCounter(size), batches, held=[0, 0]) == bins(flat(batches)[-size:])


@given(batches=BATCHES, held=st.lists(st.integers(0, 2), max_size=5))
def test_the_memory_counter_counts_the_held_samples_only(
    batches: list[list[int]], held: list[int]
) -> None:
    assert counted(MemoryCounter(), batches, held) == bins(held)


def test_the_decay_counter_decays_per_batch_not_per_sample() -> None:
    # 4 samples of class 0, two batches ago: 4 / 2 / 2; 2 of class 1, one batch ago: 2 / 2.
    assert counted(DecayCounter(0.5), [[0] * 4, [1, 1], [2]]) == [1.0, 1.0, 1.0]
    assert counted(DecayCounter(0.5), [[0] * 4, [], [2]]) == [2.0, 0.0, 1.0], (
        "an empty batch changes nothing"
    )


@given(batches=BATCHES)
def test_the_decay_counter_with_rate_one_is_cumulative(batches: list[list[int]]) -> None:
    assert counted(DecayCounter(1.0), batches) == counted(CumulativeCounter(), batches)


@pytest.mark.parametrize("counter", [kind() for kind in COUNTERS.values()], ids=repr)
def test_counting_does_not_change_the_earlier_state(counter: Any) -> None:
    initial = counter.init(3)
    once = counter.count_labels(initial, np.array([0, 1]))
    counter.count_labels(once, np.array([2, 2, 2]))
    context = some_context([0], num_classes=3)
    assert counter.histogram(counter.count_labels(initial, np.array([0, 1])), context).tolist() == (
        counter.histogram(once, context).tolist()
    )


def test_only_the_window_counter_has_a_span() -> None:
    assert WindowCounter(7).span == 7
    assert [counter.span for counter in (MemoryCounter(), CumulativeCounter(), DecayCounter())] == [
        None
    ] * 3


def test_invalid_counters_are_rejected() -> None:
    with pytest.raises(ConfigError, match="size must be at least 1 label, got 0"):
        WindowCounter(0)
    for rate in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match=r"rate must lie in \(0, 1\]"):
            DecayCounter(rate)
