from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.checkpoint import to_comparable
from thalweg.core.types import Ints
from thalweg.streams.queues import ClassQueues, QueueState

LABELS = np.array([0, 0, 0, 1, 1, 2])


def make_queues(labels: Any = LABELS, seed: int = 0) -> ClassQueues:
    labels = np.asarray(labels, dtype=np.int64)
    return ClassQueues.from_rows(np.arange(len(labels)), labels, 4, np.random.default_rng(seed))


def take_rows(
    mine: ClassQueues, counts: list[int], *, again: bool = False, seed: int = 0
) -> list[Ints]:
    state, parts = mine.begin(), []
    for step, count in enumerate(counts):
        state, rows = mine.take(state, count, again, np.random.default_rng([seed, step]))
        parts.append(rows)
    return parts


def test_queue_rows_are_sorted_by_class() -> None:
    mine = make_queues()
    assert mine.sizes.tolist() == [3, 2, 1, 0]
    assert LABELS[mine.rows].tolist() == [0, 0, 0, 1, 1, 2]


@given(
    labels=st.lists(st.integers(0, 3), max_size=30),
    counts=st.lists(st.integers(0, 10), max_size=8),
    turns=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_queue_takes_every_row_at_most_once(
    labels: list[int], counts: list[int], turns: list[bool]
) -> None:
    mine = make_queues(labels)
    state, came = mine.begin(), []
    for step, count in enumerate(counts):
        rng = np.random.default_rng(step)
        state = mine.switch_focus(state, rng) if turns[step] else state
        before = to_comparable(state)
        following, rows = mine.take(state, count, False, rng)
        assert to_comparable(state) == before, "the old state is untouched"
        came += rows.tolist()
        state = following
    assert len(came) == len(set(came)) == min(sum(counts), len(labels))
    assert state.counts.sum() == len(came)


def test_exhausted_queue_stops_or_restarts() -> None:
    assert [len(rows) for rows in take_rows(make_queues(), [4, 4, 4])] == [4, 2, 0]
    again = np.concatenate(take_rows(make_queues(), [4, 4, 4], again=True))
    assert sorted(again[:6].tolist()) == sorted(again[6:].tolist()) == [0, 1, 2, 3, 4, 5]


def test_one_take_can_span_several_passes() -> None:
    (rows,) = take_rows(make_queues(), [15], again=True)
    assert np.bincount(rows).tolist().count(3) == 3, "15 = 2 * 6 + 3"


def test_empty_queue_returns_no_rows() -> None:
    assert [rows.tolist() for rows in take_rows(make_queues([]), [3], again=True)] == [[]]


def test_next_class_is_drawn_in_proportion_to_its_rows() -> None:
    firsts = [LABELS[take_rows(make_queues(), [1], seed=seed)[0][0]] for seed in range(3000)]
    shares = np.bincount(firsts, minlength=3) / 3000
    assert abs(shares - [1 / 2, 1 / 3, 1 / 6]).max() < 5 * 0.0092


def test_order_within_one_take_is_random() -> None:
    lasts = [LABELS[take_rows(make_queues(), [6], seed=seed)[0][-1]] for seed in range(3000)]
    assert abs(np.bincount(lasts) / 3000 - [1 / 2, 1 / 3, 1 / 6]).max() < 5 * 0.0092


def test_focused_class_comes_first_until_exhausted() -> None:
    mine = make_queues()
    state = mine.begin()._replace(focus=1)
    state, rows = mine.take(state, 1, False, np.random.default_rng(0))
    assert LABELS[rows].tolist() == [1]
    state, rows = mine.take(state, 4, False, np.random.default_rng(0))
    assert LABELS[rows][0] == 1
    assert 1 not in LABELS[rows][1:]


def test_switch_focus_selects_another_class_with_rows() -> None:
    mine = make_queues()
    here = QueueState(np.array([0, 0, 1, 0]), focus=0)
    assert {mine.switch_focus(here, np.random.default_rng(s)).focus for s in range(20)} == {1}


def test_switch_focus_keeps_the_only_class_with_rows() -> None:
    mine = make_queues()
    for focus, expected in ((-1, 0), (0, 0), (2, 0)):
        here = QueueState(np.array([0, 2, 1, 0]), focus)
        assert mine.switch_focus(here, np.random.default_rng(0)).focus == expected


def test_switch_focus_keeps_the_state_of_an_exhausted_queue() -> None:
    here = QueueState(np.array([3, 2, 1, 0]), 1)
    assert make_queues().switch_focus(here, np.random.default_rng(0)) is here
