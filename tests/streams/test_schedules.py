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
    """Membership of each client in each round, (rounds, N)."""
    there = np.zeros((table.rounds, table.num_clients), dtype=bool)
    for rnd in range(table.rounds):
        there[rnd, table.members(rnd)] = True
    return there


# --- alternating groups ---


def test_two_groups_alternate() -> None:
    first, second = [0, 1], [2, 3]
    assert members(Alternating(length=2), 4, 7) == [first] * 2 + [second] * 2 + [first] * 2 + [
        second
    ]


def test_first_sessions_can_have_different_lengths() -> None:
    table = Alternating(length=2, lengths=(3, 1)).timetable(4, 10, 0)
    assert table.starts.tolist() == [0, 3, 4, 6, 8]
    assert [table.session(rnd).age for rnd in range(10)] == [0, 1, 2, 0, 0, 1, 0, 1, 0, 1]


def test_alternating_schedule_matches_the_six_sessions_of_the_paper() -> None:
    table = Alternating(length=50).timetable(40, 300, 0)
    assert table.starts.tolist() == [0, 50, 100, 150, 200, 250]
    assert table.session(120).members.tolist() == list(range(20))
    assert table.session(150).members.tolist() == list(range(20, 40))
    assert table.attendance.tolist() == [0.5] * 40


def test_alternating_groups_have_nearly_equal_sizes() -> None:
    turns = members(Alternating(groups=3, length=1), 7, 4)
    assert turns == [[0, 1, 2], [3, 4], [5, 6], [0, 1, 2]]


def test_sessions_can_last_one_round() -> None:
    table = Alternating(length=1).timetable(2, 5, 0)
    assert table.starts.tolist() == [0, 1, 2, 3, 4]


def test_recurring_pattern_repeats() -> None:
    a, b, c = [0, 1], [2, 3], [4, 5]
    assert members(Recurring("ABAC", length=1), 6, 6) == [a, b, a, c, a, b]


def test_pattern_words_join_groups_and_dashes_mean_no_group() -> None:
    a, b = [0, 1], [2, 3]
    assert members(Recurring("A AB B -", length=1), 4, 5) == [a, a + b, b, [], a]
    assert members(Recurring("A-B", length=2), 4, 6) == [a, a, [], [], b, b]


def test_letters_missing_from_the_pattern_are_absent_groups() -> None:
    assert members(Recurring("AC", length=1), 6, 2) == [[0, 1], [4, 5]]
    assert members(Recurring("AB", length=1, groups=3), 6, 2) == [[0, 1], [2, 3]]


def test_repeated_letter_makes_one_long_session() -> None:
    assert Recurring("AAB", length=2).timetable(2, 12, 0).starts.tolist() == [0, 4, 6, 10]


def test_tolerance_ignores_small_membership_changes() -> None:
    often = Recurring("ABC ABCD D", length=1, groups=4)
    assert often.timetable(8, 3, 0).starts.tolist() == [0, 1, 2]
    patient = Recurring("ABC ABCD D", length=1, groups=4, tolerance=0.25)
    assert patient.timetable(8, 3, 0).starts.tolist() == [0, 2]


# --- random churn ---


@settings(max_examples=40, deadline=None)
@example(join=1.0, leave=1.1e-308, present=1.0, seed=0)
@given(join=st.floats(0, 1), leave=st.floats(0, 1), present=st.floats(0, 1), seed=st.integers(0, 9))
def test_churn_of_a_client_is_independent_of_other_clients_and_run_length(
    join: float, leave: float, present: float, seed: int
) -> None:
    churn = RandomChurn(join, leave, present)
    large = presence(churn.timetable(9, 60, seed))
    assert (presence(churn.timetable(3, 60, seed)) == large[:, :3]).all()
    assert (presence(churn.timetable(9, 25, seed)) == large[:25]).all()


def test_chunked_churn_equals_churn_drawn_per_client() -> None:
    churn = RandomChurn(0.3, 0.2)
    many = churn.timetable(CHUNK_SIZE + 3, 30, 1)
    for client in (0, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 2):
        alone = churn._stays(np.array([client]), 30, 1)
        mine = many.clients == client
        assert many.first[mine].tolist() == alone[1].tolist()
        assert many.after[mine].tolist() == alone[2].tolist()


def test_churn_matches_join_and_leave_probabilities() -> None:
    there = presence(RandomChurn(join=0.1, leave=0.3).timetable(500, 200, 0))
    # The share tends to 0.1 / 0.4; 100,000 dependent draws, standard deviation below 0.004.
    assert abs(there.mean() - 0.25) < 0.02
    assert abs(there[0].mean() - 0.25) < 0.1, "from the first round on"
    was, now = there[:-1], there[1:]
    assert abs(now[~was].mean() - 0.1) < 0.01
    assert abs(1 - now[was].mean() - 0.3) < 0.02


def test_churn_depends_on_the_seed() -> None:
    one, other = (presence(RandomChurn().timetable(20, 50, seed)) for seed in (0, 1))
    assert (one != other).any()
    assert (one == presence(RandomChurn().timetable(20, 50, 0))).all()


def test_churn_with_one_zero_probability_is_monotone() -> None:
    there = presence(RandomChurn(join=0.2, leave=0.0, present=0.0).timetable(30, 40, 0))
    assert not there[0].any()
    assert (there[1:] >= there[:-1]).all(), "no client leaves"
    assert there[-1].mean() > 0.8
    gone = presence(RandomChurn(join=0.0, leave=0.2, present=1.0).timetable(30, 40, 0))
    assert gone[0].all()
    assert (gone[1:] <= gone[:-1]).all(), "no client returns"


def test_certain_churn_alternates_every_round() -> None:
    there = presence(RandomChurn(join=1.0, leave=1.0, present=1.0).timetable(2, 6, 0))
    assert there[:, 0].tolist() == [True, False] * 3


def test_churn_with_zero_probabilities_never_changes() -> None:
    there = presence(RandomChurn(join=0.0, leave=0.0, present=0.5).timetable(60, 9, 0))
    assert (there == there[0]).all()
    assert 15 < there[0].sum() < 45


# --- all schedules ---


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
def test_invalid_schedules_are_rejected(bad: Any) -> None:
    with pytest.raises(ConfigError):
        bad()


def test_more_groups_than_clients_are_rejected() -> None:
    with pytest.raises(ConfigError, match="3 clients cannot be divided into 4 non-empty groups"):
        Alternating(groups=4).timetable(3, 10, 0)
    with pytest.raises(ConfigError, match="2 clients cannot be divided into 3 non-empty groups"):
        Recurring("ABAC").timetable(2, 10, 0)


def test_schedules_are_selected_by_name_and_round_trip_through_toml() -> None:
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
