from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.core.types import Supplies
from thalweg.streams import Timetable, scale_supplies

Bools = npt.NDArray[np.bool_]


def timetable(
    *stays: tuple[int, int, int], num_clients: int = 4, rounds: int = 12, **more: Any
) -> Timetable:
    """Build a timetable from (client, first, after) stays."""
    columns = np.array(stays, dtype=np.int64).reshape(-1, 3).T
    return Timetable(num_clients, rounds, *columns, **more)


def timetable_from_presence(presence: Bools, tolerance: float = 0.0) -> Timetable:
    """Build a timetable from a (rounds, N) table, with one stay per round."""
    rounds, num_clients = presence.shape
    first, clients = np.nonzero(presence)
    return Timetable(num_clients, rounds, clients, first, first + 1, tolerance)


def sessions(table: Timetable) -> list[tuple[int, int]]:
    found = [table.session(rnd) for rnd in range(table.rounds)]
    return [(session.number, session.age) for session in found]


presences = st.integers(1, 5).flatmap(
    lambda num_clients: st.lists(
        st.lists(st.booleans(), min_size=num_clients, max_size=num_clients), min_size=1, max_size=20
    ).map(np.array)
)
tolerances = st.sampled_from((0.0, 0.2, 1 / 3, 0.5, 0.75, 1.0))


def expected_sessions(presence: Bools, tolerance: float) -> list[tuple[int, int]]:
    """Compute number and age of the session of every round from the definition."""
    number, age, then, found = -1, 0, frozenset[int](), []
    for row in presence:
        now = frozenset(np.flatnonzero(row).tolist())
        is_new = bool(now) and (not then or len(now ^ then) / len(now | then) > tolerance)
        if is_new:
            number, age, then = number + 1, 0, now
        elif not now:
            then = now
        found.append((number, age))
        age += bool(now)
    return found


@settings(max_examples=200, deadline=None)
@given(presence=presences, tolerance=tolerances)
def test_sessions_match_a_direct_implementation_of_the_definition(
    presence: Bools, tolerance: float
) -> None:
    table = timetable_from_presence(presence, tolerance)
    for rnd, row in enumerate(presence):
        assert table.members(rnd).tolist() == np.flatnonzero(row).tolist()
        assert table.session(rnd).members.tolist() == np.flatnonzero(row).tolist()
    assert sessions(table) == expected_sessions(presence, tolerance)
    assert table.attendance.tolist() == presence.mean(axis=0).tolist()


@settings(max_examples=100, deadline=None)
@given(presence=presences, tolerance=tolerances)
def test_session_members_number_and_age_are_consistent(presence: Bools, tolerance: float) -> None:
    table = timetable_from_presence(presence, tolerance)
    before = None
    for rnd in range(len(presence)):
        session = table.session(rnd)
        assert session.members.dtype == np.int64
        assert (np.diff(session.members) > 0).all(), "ids ascend, none twice"
        if before is not None and session.number == before.number:
            assert session.age in (before.age, before.age + 1)
        elif len(session.members):
            assert session.age == 0, "the first round of a session has nothing behind it"
            assert session.number == (-1 if before is None else before.number) + 1
        before = session
    starts = table.starts.tolist()
    assert sorted(set(starts)) == starts
    for one, other in itertools.pairwise(starts):
        then, now = set(table.members(one).tolist()), set(table.members(other).tolist())
        was_empty = not presence[one:other].any(axis=1).all()
        assert was_empty or len(then ^ now) / len(then | now) > tolerance


@settings(max_examples=100, deadline=None)
@given(presence=presences, tolerance=tolerances)
def test_previous_members_are_those_at_the_end_of_the_previous_session(
    presence: Bools, tolerance: float
) -> None:
    table = timetable_from_presence(presence, tolerance)
    ended: dict[int, list[int]] = {-1: [], -2: []}
    for rnd in range(len(presence)):
        session = table.session(rnd)
        if len(session.members):
            ended[session.number] = session.members.tolist()
        assert table.previous_members(rnd).tolist() == ended[session.number - 1]


def test_session_can_last_one_round() -> None:
    table = timetable((0, 0, 1), (1, 1, 2), (0, 2, 3), rounds=3)
    assert sessions(table) == [(0, 0), (1, 0), (2, 0)]


def test_rounds_without_members_belong_to_no_new_session() -> None:
    table = timetable((0, 2, 4), (1, 7, 9), rounds=10)
    first, second = [(0, 0), (0, 1)], [(1, 0), (1, 1)]
    assert sessions(table) == [(-1, 0)] * 2 + first + [(0, 2)] * 3 + second + [(1, 2)]
    assert len(table.session(5).members) == 0
    assert table.starts.tolist() == [2, 7]


def test_returning_members_start_a_new_session() -> None:
    table = timetable((0, 0, 3), (1, 3, 6), (0, 6, 9), rounds=9)
    assert table.starts.tolist() == [0, 3, 6]
    assert timetable((0, 0, 3), (0, 5, 9), rounds=9).starts.tolist() == [0, 5], "after a pause, too"


def test_simultaneous_join_and_leave_starts_one_new_session() -> None:
    table = timetable((0, 0, 3), (1, 0, 12), (2, 3, 12))
    assert table.starts.tolist() == [0, 3]
    assert table.members(3).tolist() == [1, 2]


def test_adjacent_stays_are_merged_in_any_order() -> None:
    table = timetable((0, 4, 8), (1, 0, 12), (0, 0, 4))
    assert table.starts.tolist() == [0, 8]
    assert len(table.clients) == 2
    other = timetable((1, 0, 12), (0, 0, 8))
    assert table.checksum == other.checksum
    assert table.checksum != timetable((1, 0, 12), (0, 0, 9)).checksum
    assert table.checksum != timetable((1, 0, 12), (0, 0, 8), tolerance=0.1).checksum


def test_tolerance_compares_members_with_the_start_of_the_session() -> None:
    four = (
        (0, 0, 12),
        (1, 0, 3),
        (2, 0, 6),
        (3, 0, 9),
    )  # three, then two, then one of four are left
    assert timetable(*four).starts.tolist() == [0, 3, 6, 9]
    assert timetable(*four, tolerance=0.25).starts.tolist() == [0, 6, 9]  # two of four, one of two
    assert timetable(*four, tolerance=0.5).starts.tolist() == [0, 9]
    assert timetable(*four, tolerance=0.5).session(8).members.tolist() == [0, 3]
    assert timetable(*four, tolerance=1.0).starts.tolist() == [0]


def test_attendance_is_the_share_of_rounds_as_a_member() -> None:
    table = timetable((0, 0, 3), (0, 9, 99), (1, 2, 5), (2, 50, 60))
    assert table.attendance.tolist() == [0.5, 0.25, 0.0, 0.0]


def test_timetable_without_stays_has_no_sessions() -> None:
    table = timetable()
    assert len(table.starts) == 0
    assert sessions(table) == [(-1, 0)] * 12
    assert table.attendance.tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("stays", "message"),
    [
        ([(4, 0, 3)], r"clients 0 to 3, got 4 to 4"),
        ([(-1, 0, 3)], r"clients 0 to 3, got -1"),
        ([(0, -2, 3)], "round 0 or later"),
        ([(0, 3, 3)], "last at least one round"),
        ([(0, 5, 3)], "last at least one round"),
        ([(1, 0, 3), (0, 2, 6), (0, 0, 3)], "stays of client 0 overlap"),
        ([(0, 2, 6), (0, 2, 6)], "stays of client 0 overlap"),
    ],
)
def test_invalid_stays_are_rejected(stays: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        timetable(*stays)


def test_invalid_tolerance_and_column_lengths_are_rejected() -> None:
    with pytest.raises(ConfigError, match="tolerance must lie in"):
        timetable(tolerance=1.5)
    with pytest.raises(ConfigError, match="every stay needs a client, a first round and an end"):
        Timetable(2, 5, np.array([0, 1]), np.array([0]), np.array([3]))


def test_supplies_are_scaled_by_attendance() -> None:
    world = Supplies(
        np.array([10.0, 40.0, 40.0]), np.array([True, False, False]), np.array([8.0] * 3)
    )
    half = np.array([0.5, 0.5, 0.0])
    frozen, collecting = (scale_supplies(world, half, collects) for collects in (False, True))
    assert frozen.total.tolist() == [10, 20, 0]
    assert collecting.total.tolist() == [10, 40, 0], (
        "a client that is never a member supplies nothing"
    )
    assert frozen.rounds.tolist() == collecting.rounds.tolist() == [4, 4, 0]
