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


def view_change(view: View, *whens: tuple[int, int, int]) -> ViewChange:
    """Build a view change from (client, first, full) triples."""
    clients, first, full = np.array(whens, dtype=np.int64).T
    return ViewChange(clients, first, full, view)


def view_table(timeline: Timeline, rounds: int) -> list[list[int]]:
    return [timeline.at(rnd).tolist() for rnd in range(rounds)]


def test_timeline_without_changes_has_one_plain_view() -> None:
    timeline = build_timeline([], 3, 2)
    assert timeline.views == (View(),)
    assert view_table(timeline, 2) == [[0, 0, 0]] * 2
    assert timeline.drift_events(10) == []
    assert timeline.view_transition(1, 5) == (0, 0, 1.0)


def test_sudden_change_applies_from_its_round() -> None:
    timeline = build_timeline(
        [view_change(OTHER, (1, 2, 2)), view_change(MIRROR, (1, 4, 4), (2, 0, 0))], 3, 2
    )
    assert timeline.views == (View(), View(labels=(1, 0)), MIRROR)
    assert view_table(timeline, 5) == [[0, 0, 2]] * 2 + [[0, 1, 2]] * 2 + [[0, 2, 2]]
    assert timeline.drift_events(10) == [(2, 1, "real"), (4, 1, "real"), (4, 1, "virtual")]
    assert timeline.drift_events(4) == [DriftEvent(2, 1, "real")], "of a shorter run"


def test_gradual_change_rises_linearly_and_counts_from_one_half() -> None:
    timeline = build_timeline([view_change(OTHER, (0, 2, 5))], 1, 2)
    assert [timeline.view_transition(0, rnd) for rnd in range(1, 7)] == [
        (0, 0, 1.0),
        (0, 1, 0.25),
        (0, 1, 0.5),
        (0, 1, 0.75),
        (1, 1, 1.0),
        (1, 1, 1.0),
    ]
    assert view_table(timeline, 6) == [[0], [0], [0], [1], [1], [1]]
    assert timeline.drift_events(10) == [(2, 0, "real")]


def test_gradual_change_can_begin_in_round_0() -> None:
    timeline = build_timeline([view_change(OTHER, (0, 0, 1))], 1, 2)
    assert timeline.view_transition(0, 0) == (0, 1, 0.5)
    assert timeline.drift_events(10) == [(0, 0, "real")]


def test_time_in_views_counts_full_and_partial_rounds() -> None:
    timeline = build_timeline(
        [view_change(OTHER, (0, 2, 5), (1, 0, 0)), view_change(MIRROR, (0, 8, 8))], 2, 2
    )
    # Client 0: two rounds as they are, then 3/4, 1/2 and 1/4 of one; all of it is 10.
    assert timeline.time_in_views(np.full(2, 10.0)).tolist() == [[3.5, 4.5, 2.0], [0, 10, 0]]
    assert timeline.time_in_views(np.array([3.0, 0.5])).tolist() == [[2.75, 0.25, 0], [0, 0.5, 0]]


def test_rounds_can_be_given_per_client() -> None:
    timeline = build_timeline([view_change(OTHER, (0, 3, 3), (1, 3, 3))], 3, 2)
    assert timeline.at(np.array([2, 3, 3])).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "turns",
    [
        [view_change(OTHER, (0, 2, 5)), view_change(MIRROR, (0, 5, 5))],
        [view_change(OTHER, (1, 2, 2)), view_change(MIRROR, (1, 2, 2))],
        [view_change(OTHER, (1, 0, 0)), view_change(MIRROR, (1, 0, 3))],
    ],
)
def test_overlapping_changes_of_one_client_are_rejected(turns: Any) -> None:
    with pytest.raises(ConfigError, match="overlap; a change must be complete"):
        build_timeline(turns, 2, 2)


@pytest.mark.parametrize("when", [(0, -2, 3), (0, 4, 3), (0, 2**31, 2**31)])
def test_changes_in_invalid_rounds_are_rejected(when: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="a view change must begin in a round from 0 to"):
        build_timeline([view_change(OTHER, when)], 2, 2)


def test_change_to_the_same_view_is_not_an_event() -> None:
    timeline = build_timeline([view_change(OTHER, (0, 1, 1), (0, 5, 5))], 1, 2)
    assert timeline.drift_events(10) == [(1, 0, "real")]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 4)),
        max_size=8,
    )
)
def test_lookups_match_a_linear_scan_of_the_changes(drawn: list[tuple[int, int, int]]) -> None:
    """Draws are (client, first, view); the first draw of a client and round is used."""
    turns = {(client, first): view for client, first, view in reversed(drawn)}
    views = [View(labels=number) for number in range(5)]
    timeline = build_timeline(
        [view_change(views[v], (c, r, r)) for (c, r), v in turns.items()], 4, 5
    )
    for client in range(4):
        view = views[0]
        for rnd in range(11):
            view = views[turns[client, rnd]] if (client, rnd) in turns else view
            expected = view.resolve(5)
            assert timeline.views[timeline.at(rnd)[client]] == expected
            assert timeline.views[timeline.view_transition(client, rnd)[1]] == expected
    assert timeline.time_in_views(np.full(4, 11.0)).sum(axis=1).tolist() == [11.0] * 4
