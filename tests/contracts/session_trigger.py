"""Contract of session triggers."""

from __future__ import annotations

import numpy as np

from contracts.checkpoint import round_trip, to_comparable
from thalweg.core.types import Ints
from thalweg.sessions import SessionTrigger

NUM_CLIENTS = 12
ROUNDS = 60


def draw_presence() -> list[Ints]:
    """Return the clients of each round: two halves alternate, with gaps and empty rounds."""
    rng = np.random.default_rng(0)
    rounds = []
    for rnd in range(ROUNDS):
        half = np.arange(6) + 6 * (rnd // 15 % 2)
        rounds.append(half[rng.random(6) < (0.0 if rnd % 17 == 0 else 0.8)])
    return rounds


def check_session_trigger(trigger: SessionTrigger) -> None:
    """Observe some rounds, with alarms in every third one."""
    fields = repr(trigger)
    state, number = trigger.init(NUM_CLIENTS), -1
    for rnd, present in enumerate(draw_presence()):
        arguments = to_comparable([state, present])
        following, opening = trigger.observe_presence(state, rnd, present)
        assert to_comparable([state, present]) == arguments, "arguments do not change"
        restored = round_trip(state, fresh=trigger.init(NUM_CLIENTS))
        again, _ = trigger.observe_presence(restored, rnd, present)
        assert to_comparable(again) == to_comparable(following), "the state survives a checkpoint"
        session = trigger.get_session(following, rnd)
        is_first = number < 0 and len(present) > 0
        assert session.number - number == int(opening is not None or is_first), (
            "numbers are consecutive"
        )
        assert opening is None or len(present), "a session starts with a client"
        assert opening is None or session.age == 0, "the age counts rounds of the session"
        assert opening is None or opening.reason, "there is a reason"
        assert (np.diff(session.members) > 0).all(), "members are ascending"
        assert session.number < 0 or np.isin(present, session.members).all(), (
            "clients that are present are members"
        )
        number = session.number
        state = following
        if rnd % 3 == 0:
            before = to_comparable(state)
            following = trigger.observe_alarms(state, rnd, present[:2])
            assert to_comparable(state) == before, "arguments do not change"
            state = following
    assert number >= 0, "the first client starts a session"
    quiet, opened = trigger.init(NUM_CLIENTS), 0
    for rnd in range(ROUNDS):
        quiet, opening = trigger.observe_presence(quiet, rnd, np.arange(NUM_CLIENTS))
        opened += opening is not None
    assert opened == 0, "without a change there is one session"
    assert repr(trigger) == fields, "a policy object does not change"
