from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.transforms import Mirrored
from thalweg.core.views import View
from thalweg.streams import DriftEvent, Timeline, ViewChange, build_timeline

OTHER, MIRROR = View(labels=1), View(Mirrored())


def turn(view: View, *whens: tuple[int, int, int]) -> ViewChange:
    """Of (client, first, full)."""
    clients, first, full = np.array(whens, dtype=np.int64).T
    return ViewChange(clients, first, full, view)


def table(timeline: Timeline, rounds: int) -> list[list[int]]:
    return [timeline.at(rnd).tolist() for rnd in range(rounds)]


def test_without_turns_everybody_sees_samples_as_they_are() -> None:
    timeline = build_timeline([], 3, 2)
    assert timeline.views == (View(),)
    assert table(timeline, 2) == [[0, 0, 0]] * 2
    assert timeline.drift_events(10) == []
    assert timeline.view_transition(1, 5) == (0, 0, 1.0)


def test_a_sudden_turn_holds_from_its_round_on() -> None:
    timeline = build_timeline([turn(OTHER, (1, 2, 2)), turn(MIRROR, (1, 4, 4), (2, 0, 0))], 3, 2)
    assert timeline.views == (View(), View(labels=(1, 0)), MIRROR)
    assert table(timeline, 5) == [[0, 0, 2]] * 2 + [[0, 1, 2]] * 2 + [[0, 2, 2]]
    assert timeline.drift_events(10) == [(2, 1, "real"), (4, 1, "real"), (4, 1, "virtual")]
    assert timeline.drift_events(4) == [DriftEvent(2, 1, "real")], "of a shorter run"


def test_a_gradual_turn_rises_linearly_and_the_new_view_counts_from_half_on() -> None:
    timeline = build_timeline([turn(OTHER, (0, 2, 5))], 1, 2)
    assert [timeline.view_transition(0, rnd) for rnd in range(1, 7)] == [
        (0, 0, 1.0),
        (0, 1, 0.25),
        (0, 1, 0.5),
        (0, 1, 0.75),
        (1, 1, 1.0),
        (1, 1, 1.0),
    ]
    assert table(timeline, 6) == [[0], [0], [0], [1], [1], [1]]
    assert timeline.drift_events(10) == [(2, 0, "real")]


def test_a_gradual_turn_may_begin_with_the_run() -> None:
    timeline = build_timeline([turn(OTHER, (0, 0, 1))], 1, 2)
    assert timeline.view_transition(0, 0) == (0, 1, 0.5)
    assert timeline.drift_events(10) == [(0, 0, "real")]


def test_time_in_views_counts_rounds_and_parts_of_them() -> None:
    timeline = build_timeline([turn(OTHER, (0, 2, 5), (1, 0, 0)), turn(MIRROR, (0, 8, 8))], 2, 2)
    # Client 0: two rounds as they are, then 3/4, 1/2 and 1/4 of one; all of it is 10.
    assert timeline.time_in_views(np.full(2, 10.0)).tolist() == [[3.5, 4.5, 2.0], [0, 10, 0]]
    assert timeline.time_in_views(np.array([3.0, 0.5])).tolist() == [[2.75, 0.25, 0], [0, 0.5, 0]]


def test_every_client_may_have_a_clock_of_its_own() -> None:
    timeline = build_timeline([turn(OTHER, (0, 3, 3), (1, 3, 3))], 3, 2)
    assert timeline.at(np.array([2, 3, 3])).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "turns",
    [
        [turn(OTHER, (0, 2, 5)), turn(MIRROR, (0, 5, 5))],
        [turn(OTHER, (1, 2, 2)), turn(MIRROR, (1, 2, 2))],
        [turn(OTHER, (1, 0, 0)), turn(MIRROR, (1, 0, 3))],
    ],
)
def test_turns_of_one_client_must_not_overlap(turns: Any) -> None:
    with pytest.raises(ConfigError, match="overlap; a change must be complete"):
        build_timeline(turns, 2, 2)


@pytest.mark.parametrize("when", [(0, -2, 3), (0, 4, 3), (0, 2**31, 2**31)])
def test_turns_in_rounds_that_cannot_be_are_refused(when: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="a view change must begin in a round from 0 to"):
        build_timeline([turn(OTHER, when)], 2, 2)


def test_a_turn_to_the_same_view_is_no_change() -> None:
    timeline = build_timeline([turn(OTHER, (0, 1, 1), (0, 5, 5))], 1, 2)
    assert timeline.drift_events(10) == [(1, 0, "real")]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 4)),
        max_size=8,
    )
)
def test_lookups_agree_with_going_through_the_turns(drawn: list[tuple[int, int, int]]) -> None:
    """(client, first, number of the view); of one client and round the first one counts."""
    turns = {(client, first): view for client, first, view in reversed(drawn)}
    views = [View(labels=number) for number in range(5)]
    timeline = build_timeline([turn(views[v], (c, r, r)) for (c, r), v in turns.items()], 4, 5)
    for client in range(4):
        view = views[0]
        for rnd in range(11):
            view = views[turns[client, rnd]] if (client, rnd) in turns else view
            expected = view.resolve(5)
            assert timeline.views[timeline.at(rnd)[client]] == expected
            assert timeline.views[timeline.view_transition(client, rnd)[1]] == expected
    assert timeline.time_in_views(np.full(4, 11.0)).sum(axis=1).tolist() == [11.0] * 4
