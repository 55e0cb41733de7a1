"""Accuracy after transitions between sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.evaluation import transitions
from thalweg.evaluation.transitions import (
    CROSSING_ROUNDS,
    FIRST_ROUNDS,
    take_until_crossing,
    take_until_transition,
)


def session(number, accuracies, **first):
    """Return one row per round (None: not evaluated); `first` is added to the first row."""
    rows = []
    for place, accuracy in enumerate(accuracies):
        row = {"session": number, "session_round": place + 1}
        if accuracy is not None:
            row["session_accuracy"] = accuracy
        rows.append(row)
    rows[0] |= first
    return rows


def test_transition_accuracy_averages_the_first_ten_rounds():
    rows = session(0, [0.9]) + session(1, [0.1] * 5 + [0.5] * 5 + [0.9] * 5)
    (found,) = transitions(rows)
    assert found.transition_accuracy == 0.3
    assert (found.rounds_averaged, found.rounds) == (10, 15)


def test_crossing_accuracy_averages_the_last_evaluation_and_four_rounds():
    rows = session(0, [0.1, 0.9, None]) + session(1, [0.1, 0.2, 0.3, 0.5, 0.9])
    (found,) = transitions(rows)
    assert found.crossing_accuracy == pytest.approx((0.9 + 0.1 + 0.2 + 0.3 + 0.5) / 5)


def test_crossing_accuracy_needs_evaluations_on_both_sides():
    before, after = transitions(session(0, [None]) + session(1, [0.5]) + session(2, [None] * 4))
    assert before.crossing_accuracy is None
    assert after.crossing_accuracy is None


def test_transition_of_a_short_session_has_the_number_of_averaged_rounds():
    (found,) = transitions(session(0, [0.9]) + session(1, [0.25, 0.75]))
    assert (found.transition_accuracy, found.rounds_averaged) == (0.5, 2)


def test_recovery_ends_at_the_accuracy_before_the_transition():
    rows = session(0, [0.9, 0.6, None]) + session(1, [0.2, None, 0.6, 0.5])
    (found,) = transitions(rows)
    assert found.accuracy_before == 0.6, "the last measured accuracy, not the best"
    assert found.rounds_to_recover == 3


def test_transition_without_recovery_has_no_recovery_time():
    (found,) = transitions(session(0, [0.9]) + session(1, [0.2, 0.8]))
    assert found.rounds_to_recover is None


def test_transition_without_earlier_accuracy_has_no_recovery_time():
    (found,) = transitions(session(0, [None]) + session(1, [0.2]))
    assert (found.accuracy_before, found.rounds_to_recover) == (None, None)
    assert found.transition_accuracy == 0.2


def test_probe_rounds_count_as_rounds():
    rows = session(0, [0.9], probe_rounds=9) + session(1, [0.2, 0.8], probe_rounds=2)
    (found,) = transitions(rows)
    assert (found.rounds, found.counted_rounds) == (2, 4)


def test_stayers_and_newcomers_are_averaged_over_the_same_rounds():
    rows = session(0, [0.9]) + session(1, [0.1] * 12)
    rows[1] |= {"stayers_accuracy": 0.5, "newcomers_accuracy": 0.25}
    rows[2] |= {"stayers_accuracy": 1.0}
    rows[12] |= {"stayers_accuracy": 0.0}  # the twelfth round
    (found,) = transitions(rows)
    assert (found.stayers_accuracy, found.newcomers_accuracy) == (0.75, 0.25)


def test_rounds_without_clients_belong_to_no_session():
    rows = [{}, *session(0, [0.5]), {}, {}, *session(1, [0.5]), {}]
    assert [found.rounds for found in transitions(rows)] == [1]


def test_run_without_sessions_has_no_transitions():
    assert transitions([{"round": 1, "accuracy": 0.5}]) == []
    assert transitions(session(0, [0.5, 0.6])) == []


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=9), min_size=2, max_size=5))
def test_take_until_crossing_ends_with_the_crossing_accuracy(sessions):
    rows = [row for number, each in enumerate(sessions) for row in session(number, each)]
    for each in transitions(rows):
        part = take_until_crossing(rows, each.session)
        found = [row["crossing_accuracy"] for row in part if "crossing_accuracy" in row]
        assert len(found) == min(each.rounds, CROSSING_ROUNDS)
        assert part[-1]["session"] == each.session
        assert found[-1] == each.crossing_accuracy


def test_without_an_earlier_evaluation_no_round_has_a_crossing_accuracy():
    rows = session(0, [None]) + session(1, [0.5, 0.5])
    assert not any("crossing_accuracy" in row for row in take_until_crossing(rows, 1))


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=15), min_size=1, max_size=5))
def test_take_until_transition_ends_with_the_transition_accuracy(sessions):
    rows = [row for number, each in enumerate(sessions) for row in session(number, each)]
    found = transitions(rows)
    assert [each.session for each in found] == list(range(1, len(sessions)))
    for each in found:
        part = take_until_transition(rows, each.session)
        last = [row["transition_accuracy"] for row in part if "transition_accuracy" in row]
        assert len(last) == min(each.rounds, FIRST_ROUNDS)
        assert part[-1]["session"] == each.session
        assert last[-1] == each.transition_accuracy
