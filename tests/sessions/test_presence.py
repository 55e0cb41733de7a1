"""Sessions that open when the present clients change, or when many raise alarms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError
from thalweg.sessions import Presence
from thalweg.sessions.presence import PresenceState


def observe(
    trigger: Presence, presence: Iterable[Sequence[int]], num_clients: int = 4
) -> tuple[PresenceState, list[int]]:
    """Return the state after some rounds, and the rounds in which a session opened."""
    state, opened = trigger.init(num_clients), []
    for rnd, present in enumerate(presence):
        state, opening = trigger.observe_presence(state, rnd, np.array(present, dtype=np.int64))
        if opening is not None:
            opened.append(rnd)
    return state, opened


def test_absence_probabilities_are_predictive() -> None:
    """Present in 3 rounds, so in 2 of 2 after the first: absent with 1/4, then 1/4 * 2/5."""
    state, _ = observe(Presence(), [[0], [0], [0], [1], [1]])
    assert state.gap_probs.tolist() == pytest.approx([1 / 4 * 2 / 5, 1, 1, 1])
    # Back after two absences: 3 of 5 rounds after the first; absent with 3/7.
    state, _ = observe(Presence(), [[0], [0], [0], [1], [1], [0, 1], [1]])
    assert state.gap_probs[0] == pytest.approx(3 / 7)


def test_probability_that_a_member_was_not_present_yet() -> None:
    """Two clients: 1/2 in the first round, then 3/4 and 5/6 of them are present."""
    state, _ = observe(Presence(), [[0, 1]] * 3)
    assert state.unseen_prob == pytest.approx(1 / 2 * 1 / 4 * 1 / 6)


def test_first_session_starts_with_the_first_clients() -> None:
    trigger = Presence()
    state, _ = observe(trigger, [[], []])
    session = trigger.get_session(state, 1)
    assert (session.number, session.age, session.members.tolist()) == (-1, 0, [])
    state, opened = observe(trigger, [[], [], [1, 2], [1, 2]])
    session = trigger.get_session(state, 3)
    assert (session.number, session.age, session.members.tolist()) == (0, 1, [1, 2])
    assert opened == []


def test_arrivals_open_a_session_at_once_and_departures_when_they_are_not_chance() -> None:
    arrivals = [[0, 1]] * 10 + [[0, 1, 2]] * 10
    assert observe(Presence(), arrivals)[1] == [10]  # 1 of 3 clients
    # In 10 rounds: 1/11 * 2/12 * 3/13 * 4/14 = 0.001 after four absences, below 0.002.
    departures = [[0, 1, 2]] * 10 + [[0, 1]] * 10
    assert observe(Presence(), departures)[1] == [13]
    assert observe(Presence(tolerance=0.34), arrivals + departures[10:])[1] == []


def test_a_new_session_has_the_members_that_are_present() -> None:
    trigger = Presence()
    state, opened = observe(trigger, [[0, 1]] * 10 + [[2, 3]])
    assert opened == [10]
    session = trigger.get_session(state, 10)
    assert (session.number, session.age, session.members.tolist()) == (1, 0, [2, 3])
    state, opened = observe(trigger, [[0, 1]] * 10 + [[2, 3]] * 20)
    assert opened == [10], "the old clients leave with the old session"


def test_a_change_must_persist() -> None:
    visit = [[0, 1]] * 30 + [[0, 1, 2, 3]] + [[0, 1]] * 30
    patient = Presence(debounce=6)
    assert observe(Presence(), visit)[1][0] == 30
    # A visitor that was present once has not left for long: 1/2 * 2/3 * ... = 1 / (g + 1).
    assert observe(patient, visit)[1] == [35]
    assert observe(patient, visit[:35])[1] == []
    # 6 of 6 clients leave and others come, then those return after two rounds.
    swapped = [[0, 1]] * 30 + [[0], [0], [0, 1], [0, 1]] * 3
    assert observe(Presence(debounce=3, risk=0.1), swapped)[1] == []


def test_rounds_without_clients_are_not_counted() -> None:
    outage = [[0, 1]] * 10 + [[]] * 50 + [[0, 1]] * 10
    assert observe(Presence(), outage)[1] == []


@pytest.mark.parametrize("availability", [0.9, 0.7, 0.5])
def test_flickering_presence_opens_no_session(availability: float) -> None:
    rng = np.random.default_rng(0)
    presence = [np.flatnonzero(rng.random(20) < availability).tolist() for _ in range(300)]
    assert observe(Presence(), presence, 20)[1] == []


@pytest.mark.parametrize("availability", [1.0, 0.9, 0.5])
def test_alternating_groups_are_found_in_spite_of_flickering(availability: float) -> None:
    rng, presence = np.random.default_rng(0), []
    for rnd in range(120):
        group = np.arange(20) + 20 * (rnd // 20 % 2)
        presence.append(group[rng.random(20) < availability].tolist())
    assert observe(Presence(), presence, 40)[1] == [20, 40, 60, 80, 100]


@given(
    is_present=st.lists(st.booleans(), min_size=1, max_size=60),
    others=st.integers(3, 8),
)
def test_one_client_opens_no_session_among_four_or_more(
    is_present: list[bool], others: int
) -> None:
    """It comes and goes as it likes; the others are always present."""
    steady = list(range(1, others + 1))
    presence = [[0, *steady] if here else steady for here in is_present]
    assert observe(Presence(), presence, others + 1)[1] == []


def test_reason_has_the_numbers() -> None:
    trigger = Presence()
    state, _ = observe(trigger, [[0, 1]] * 10)
    _, opening = trigger.observe_presence(state, 10, np.array([2, 3]))
    assert opening is not None
    assert opening.reason == "50% of 4 members changed (2 joined, 0 left; tolerance 25%)"
    assert opening.numbers == {"joined": 2, "left": 0, "share": 0.5}


def test_alarms_of_a_share_of_the_members_open_a_session_once() -> None:
    trigger = Presence(alarm_share=0.5, alarm_window=3)
    present = np.arange(4)
    state, _ = observe(trigger, [present.tolist()] * 5)
    state = trigger.observe_alarms(state, 4, np.array([0]))
    state, opening = trigger.observe_presence(state, 5, present)
    assert opening is None, "one of four"
    state = trigger.observe_alarms(state, 6, np.array([2]))
    state, opening = trigger.observe_presence(state, 7, present)
    assert opening is not None
    assert opening.reason == "alarms of 2 of 4 clients in the last 3 rounds"
    assert opening.numbers == {"alarms": 2, "share": 0.5}
    assert trigger.get_session(state, 7).number == 1
    assert trigger.observe_presence(state, 8, present)[1] is None


def test_old_alarms_and_alarms_of_clients_that_left_do_not_count() -> None:
    trigger = Presence(alarm_share=0.5, alarm_window=3)
    present = np.arange(4)
    state, _ = observe(trigger, [present.tolist()] * 5)
    state = trigger.observe_alarms(state, 4, np.array([0]))
    state = trigger.observe_alarms(state, 8, np.array([2]))
    assert trigger.observe_presence(state, 8, present)[1] is None, "more than three rounds apart"
    without = Presence()
    assert without.observe_alarms(state, 9, present) is state, "alarms open no session"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tolerance": 1.0}, r"tolerance must lie in \[0, 1\)"),
        ({"debounce": 0}, "debounce must be at least 1"),
        ({"risk": 0.0}, r"risk must lie in \(0, 1\)"),
        ({"alarm_share": 0.0}, r"alarm_share must lie in \(0, 1\], or none"),
        ({"alarm_window": 0}, "alarm_window must be at least 1"),
        ({"alarm_window": 5}, "alarm_window=5 has no effect without session_trigger.alarm_share"),
    ],
)
def test_settings_out_of_range_are_rejected(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Presence(**settings)  # type: ignore[arg-type]
