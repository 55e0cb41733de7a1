from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError
from thalweg.scenarios import find_scenario
from thalweg.streams import SCHEDULES, Alternating, RandomChurn, Recurring, Schedule, Timetable
from thalweg.streams.schedules import CHUNK_SIZE


def members(schedule: Schedule, num_clients: int, rounds: int, seed: int = 0) -> list[list[int]]:
    table = schedule.timetable(num_clients, rounds, seed)
    return [table.members(rnd).tolist() for rnd in range(rounds)]


def presence(table: Timetable) -> Any:
    """(rounds, N) who is there."""
    there = np.zeros((table.rounds, table.num_clients), dtype=bool)
    for rnd in range(table.rounds):
        there[rnd, table.members(rnd)] = True
    return there


# --- groups that take turns ---


def test_two_halves_take_turns() -> None:
    first, second = [0, 1], [2, 3]
    assert members(Alternating(length=2), 4, 7) == [first] * 2 + [second] * 2 + [first] * 2 + [
        second
    ]


def test_the_first_sessions_may_have_lengths_of_their_own() -> None:
    table = Alternating(length=2, lengths=(3, 1)).timetable(4, 10, 0)
    assert table.starts.tolist() == [0, 3, 4, 6, 8]
    assert [table.session(rnd).age for rnd in range(10)] == [0, 1, 2, 0, 0, 1, 0, 1, 0, 1]


def test_six_sessions_of_the_paper_on_forty_clients() -> None:
    table = Alternating(length=50).timetable(40, 300, 0)
    assert table.starts.tolist() == [0, 50, 100, 150, 200, 250]
    assert table.session(120).members.tolist() == list(range(20))
    assert table.session(150).members.tolist() == list(range(20, 40))
    assert table.attendance.tolist() == [0.5] * 40


def test_groups_are_as_equal_as_can_be() -> None:
    turns = members(Alternating(groups=3, length=1), 7, 4)
    assert turns == [[0, 1, 2], [3, 4], [5, 6], [0, 1, 2]]


def test_sessions_of_one_round() -> None:
    table = Alternating(length=1).timetable(2, 5, 0)
    assert table.starts.tolist() == [0, 1, 2, 3, 4]


def test_a_pattern_recurs() -> None:
    a, b, c = [0, 1], [2, 3], [4, 5]
    assert members(Recurring("ABAC", length=1), 6, 6) == [a, b, a, c, a, b]


def test_words_join_groups_and_dashes_are_nobody() -> None:
    a, b = [0, 1], [2, 3]
    assert members(Recurring("A AB B -", length=1), 4, 5) == [a, a + b, b, [], a]
    assert members(Recurring("A-B", length=2), 4, 6) == [a, a, [], [], b, b]


def test_letters_that_are_left_out_are_groups_that_never_come() -> None:
    assert members(Recurring("AC", length=1), 6, 2) == [[0, 1], [4, 5]]
    assert members(Recurring("AB", length=1, groups=3), 6, 2) == [[0, 1], [2, 3]]


def test_the_same_letter_twice_is_one_long_session() -> None:
    assert Recurring("AAB", length=2).timetable(2, 12, 0).starts.tolist() == [0, 4, 6, 10]


def test_a_tolerance_ignores_small_groups_that_come_and_go() -> None:
    often = Recurring("ABC ABCD D", length=1, groups=4)
    assert often.timetable(8, 3, 0).starts.tolist() == [0, 1, 2]
    patient = Recurring("ABC ABCD D", length=1, groups=4, tolerance=0.25)
    assert patient.timetable(8, 3, 0).starts.tolist() == [0, 2]


# --- random churn ---


@settings(max_examples=40, deadline=None)
@example(join=1.0, leave=1.1e-308, present=1.0, seed=0)
@given(join=st.floats(0, 1), leave=st.floats(0, 1), present=st.floats(0, 1), seed=st.integers(0, 9))
def test_what_a_client_does_depends_on_nobody_else_and_not_on_the_length_of_the_run(
    join: float, leave: float, present: float, seed: int
) -> None:
    churn = RandomChurn(join, leave, present)
    large = presence(churn.timetable(9, 60, seed))
    assert (presence(churn.timetable(3, 60, seed)) == large[:, :3]).all()
    assert (presence(churn.timetable(9, 25, seed)) == large[:25]).all()


def test_clients_beyond_those_that_are_drawn_together_are_the_same_as_alone() -> None:
    churn = RandomChurn(0.3, 0.2)
    many = churn.timetable(CHUNK_SIZE + 3, 30, 1)
    for client in (0, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 2):
        alone = churn._stays(np.array([client]), 30, 1)
        mine = many.clients == client
        assert many.first[mine].tolist() == alone[1].tolist()
        assert many.after[mine].tolist() == alone[2].tolist()


def test_clients_come_and_go_as_often_as_said() -> None:
    there = presence(RandomChurn(join=0.1, leave=0.3).timetable(500, 200, 0))
    # The share tends to 0.1 / 0.4; 100,000 dependent draws, standard deviation below 0.004.
    assert abs(there.mean() - 0.25) < 0.02
    assert abs(there[0].mean() - 0.25) < 0.1, "from the first round on"
    was, now = there[:-1], there[1:]
    assert abs(now[~was].mean() - 0.1) < 0.01
    assert abs(1 - now[was].mean() - 0.3) < 0.02


def test_the_seed_decides() -> None:
    one, other = (presence(RandomChurn().timetable(20, 50, seed)) for seed in (0, 1))
    assert (one != other).any()
    assert (one == presence(RandomChurn().timetable(20, 50, 0))).all()


def test_who_joins_never_leaves_and_the_other_way_round() -> None:
    there = presence(RandomChurn(join=0.2, leave=0.0, present=0.0).timetable(30, 40, 0))
    assert not there[0].any()
    assert (there[1:] >= there[:-1]).all(), "nobody leaves"
    assert there[-1].mean() > 0.8
    gone = presence(RandomChurn(join=0.0, leave=0.2, present=1.0).timetable(30, 40, 0))
    assert gone[0].all()
    assert (gone[1:] <= gone[:-1]).all(), "nobody comes back"


def test_certain_changes_take_turns_round_by_round() -> None:
    there = presence(RandomChurn(join=1.0, leave=1.0, present=1.0).timetable(2, 6, 0))
    assert there[:, 0].tolist() == [True, False] * 3


def test_nothing_need_ever_change() -> None:
    there = presence(RandomChurn(join=0.0, leave=0.0, present=0.5).timetable(60, 9, 0))
    assert (there == there[0]).all()
    assert 15 < there[0].sum() < 45


# --- all of them ---


@pytest.mark.parametrize(
    "bad",
    [
        lambda: Alternating(groups=1),
        lambda: Alternating(length=0),
        lambda: Alternating(lengths=(5, 0)),
        lambda: Recurring(length=0),
        lambda: Recurring(pattern=""),
        lambda: Recurring(pattern="--"),
        lambda: Recurring(pattern="AbA"),
        lambda: Recurring(pattern="A1"),
        lambda: Recurring(pattern="ABC", groups=2),
        lambda: Recurring(tolerance=-0.1),
        lambda: RandomChurn(join=1.2),
        lambda: RandomChurn(leave=float("nan")),
        lambda: RandomChurn(present=-1.0),
        lambda: RandomChurn(join=0.0, leave=0.0),
        lambda: RandomChurn(tolerance=2.0),
    ],
)
def test_an_impossible_schedule_is_refused_where_it_is_made(bad: Any) -> None:
    with pytest.raises(ConfigError):
        bad()


def test_more_groups_than_clients_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 clients cannot be divided into 4 non-empty groups"):
        Alternating(groups=4).timetable(3, 10, 0)
    with pytest.raises(ConfigError, match="2 clients cannot be divided into 3 non-empty groups"):
        Recurring("ABAC").timetable(2, 10, 0)


def test_schedules_are_chosen_by_name_and_can_be_written_to_a_file() -> None:
    scenario = find_scenario("digits-partial")
    assert scenario.sessions is None
    changed = with_overrides(
        scenario, ["sessions=alternating", "sessions.length=5", "sessions.lengths=[2, 3]"]
    )
    assert changed.sessions == Alternating(length=5, lengths=(2, 3))
    assert from_dict(type(changed), to_dict(changed)) == changed
    for kind, schedule in SCHEDULES.items():
        assert with_overrides(scenario, [f"sessions={kind}"]).sessions == schedule()
    assert with_overrides(changed, ["sessions=none"]).sessions is None
