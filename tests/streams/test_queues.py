from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.checkpoint import to_comparable
from thalweg.core.types import Ints
from thalweg.streams.queues import ClassQueues, QueueState

LABELS = np.array([0, 0, 0, 1, 1, 2])


def queues(labels: Any = LABELS, seed: int = 0) -> ClassQueues:
    labels = np.asarray(labels, dtype=np.int64)
    return ClassQueues.from_rows(np.arange(len(labels)), labels, 4, np.random.default_rng(seed))


def taken(
    mine: ClassQueues, counts: list[int], *, again: bool = False, seed: int = 0
) -> list[Ints]:
    state, parts = mine.begin(), []
    for step, count in enumerate(counts):
        state, rows = mine.take(state, count, again, np.random.default_rng([seed, step]))
        parts.append(rows)
    return parts


def test_rows_lie_class_after_class() -> None:
    mine = queues()
    assert mine.sizes.tolist() == [3, 2, 1, 0]
    assert LABELS[mine.rows].tolist() == [0, 0, 0, 1, 1, 2]


@given(
    labels=st.lists(st.integers(0, 3), max_size=30),
    counts=st.lists(st.integers(0, 10), max_size=8),
    turns=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_no_row_comes_twice_and_none_is_lost(
    labels: list[int], counts: list[int], turns: list[bool]
) -> None:
    mine = queues(labels)
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


def test_when_all_have_come_there_is_silence_or_they_start_again() -> None:
    assert [len(rows) for rows in taken(queues(), [4, 4, 4])] == [4, 2, 0]
    again = np.concatenate(taken(queues(), [4, 4, 4], again=True))
    assert sorted(again[:6].tolist()) == sorted(again[6:].tolist()) == [0, 1, 2, 3, 4, 5]


def test_more_than_a_whole_lap_may_come_at_once() -> None:
    (rows,) = taken(queues(), [15], again=True)
    assert np.bincount(rows).tolist().count(3) == 3, "15 = 2 * 6 + 3"


def test_nothing_comes_of_nothing() -> None:
    assert [rows.tolist() for rows in taken(queues([]), [3], again=True)] == [[]]


def test_the_next_row_is_of_any_class_as_often_as_there_are_rows_of_it() -> None:
    firsts = [LABELS[taken(queues(), [1], seed=seed)[0][0]] for seed in range(3000)]
    shares = np.bincount(firsts, minlength=3) / 3000
    assert abs(shares - [1 / 2, 1 / 3, 1 / 6]).max() < 5 * 0.0092


def test_the_order_inside_a_batch_is_random_too() -> None:
    lasts = [LABELS[taken(queues(), [6], seed=seed)[0][-1]] for seed in range(3000)]
    assert abs(np.bincount(lasts) / 3000 - [1 / 2, 1 / 3, 1 / 6]).max() < 5 * 0.0092


def test_the_class_in_focus_comes_first_until_it_is_used_up() -> None:
    mine = queues()
    state = mine.begin()._replace(focus=1)
    state, rows = mine.take(state, 1, False, np.random.default_rng(0))
    assert LABELS[rows].tolist() == [1]
    state, rows = mine.take(state, 4, False, np.random.default_rng(0))
    assert LABELS[rows][0] == 1
    assert 1 not in LABELS[rows][1:]


def test_a_turn_is_to_another_class_that_has_rows_left() -> None:
    mine = queues()
    here = QueueState(np.array([0, 0, 1, 0]), focus=0)
    assert {mine.switch_focus(here, np.random.default_rng(s)).focus for s in range(20)} == {1}


def test_who_has_one_class_left_stays_with_it() -> None:
    mine = queues()
    for focus, expected in ((-1, 0), (0, 0), (2, 0)):
        here = QueueState(np.array([0, 2, 1, 0]), focus)
        assert mine.switch_focus(here, np.random.default_rng(0)).focus == expected


def test_who_has_nothing_left_turns_nowhere() -> None:
    here = QueueState(np.array([3, 2, 1, 0]), 1)
    assert queues().switch_focus(here, np.random.default_rng(0)) is here
