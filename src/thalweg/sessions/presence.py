"""Sessions from presence: a session starts when the observed membership changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints, Session
from thalweg.sessions.base import Opening

Bools = npt.NDArray[np.bool_]
NEVER = -1  # round of an event that has not happened


class PresenceState(NamedTuple):
    """What the server has observed in the current session."""

    number: int  # of the session; -1: none has started
    start: int  # its first round
    presences: Ints  # (N,) rounds in which each client was present
    absences: Ints  # (N,) rounds of absence after its first presence
    gap_probs: Floats  # (N,) probability of an absence as long as the current one; 1: present
    unseen_prob: float  # probability that a member has not been present in this session yet
    initial: Bools  # (N,) members at the start
    changed_for: int  # rounds in a row in which more than the tolerance differed
    alarm_rounds: Ints  # (N,) round of the last alarm; -1: none in this session


@dataclass(frozen=True)
class Presence:
    r"""Opens a session when the clients that are present have changed, or many raise alarms.

    A client is a member from its first presence in a session until its absence is too long to be
    chance. A client that was present in s of n rounds after its first one is present again with
    the predictive probability :math:`(s + 1) / (n + 2)`, so that an absence of g rounds has the
    probability

    .. math::  q(g) = \prod_{j=0}^{g-1} \frac{n - s + 1 + j}{n + 2 + j}

    It has left if :math:`q(g) < \text{risk}`. A client that is always present has left after few
    rounds of absence, one that is rarely present after many, so that flickering presence opens no
    sessions. A session opens if

    .. math::  |M \triangle M_0| > \text{tolerance} \cdot |M \cup M_0|

    in `debounce` rounds in a row, where M are the members now and :math:`M_0` those at the start of
    the session: all clients seen until the probability that a member has not been present yet is
    at most a tenth of the tolerance (or `risk`, if that is larger), which takes three rounds with
    two clients that are always present. Rounds without a client are not counted. This replaces a
    schedule of the scenario.

    Two clients are present in six rounds. Then two others take their place, and half of the four
    members have changed:

    >>> trigger, sessions = Presence(), []
    >>> state = trigger.init(4)
    >>> for rnd, present in enumerate([[0, 1]] * 6 + [[2, 3]] * 2):
    ...     state, opening = trigger.observe_presence(state, rnd, np.array(present))
    ...     sessions.append(trigger.get_session(state, rnd).number)
    >>> sessions
    [0, 0, 0, 0, 0, 0, 1, 1]
    """

    tolerance: float = 0.25
    """Share of all old and new members that must differ before a session opens."""
    debounce: int = 1
    """Rounds in a row in which more members than the tolerance must differ."""
    risk: float = 0.002
    """A client has left if an absence as long as its own has a smaller probability."""
    alarm_share: float | None = None
    """Share of the members whose alarms open a session; none: alarms open no session."""
    alarm_window: int = 20
    """Rounds in which alarms count together."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            tolerance="[0, 1)",
            debounce="[1, inf)",
            risk="(0, 1)",
            alarm_share="(0, 1] or none",
            alarm_window="[1, inf)",
        )
        window = type(self).alarm_window
        require(
            self.alarm_share is not None or self.alarm_window == window,
            f"session_trigger.alarm_window={self.alarm_window} has no effect without "
            f"session_trigger.alarm_share: expected {window}, the default. Leave it out, or set a "
            "share, such as session_trigger.alarm_share=0.5.",
        )

    @property
    def monitors(self) -> str:
        alarms = "" if self.alarm_share is None else ", and the share of them that raise alarms"
        return f"the clients that are present (sessions){alarms}"

    def init(self, num_clients: int) -> PresenceState:
        return PresenceState(
            number=-1,
            start=0,
            presences=np.zeros(num_clients, dtype=np.int64),
            absences=np.zeros(num_clients, dtype=np.int64),
            gap_probs=np.ones(num_clients),
            unseen_prob=1.0,
            initial=np.zeros(num_clients, dtype=bool),
            changed_for=0,
            alarm_rounds=np.full(num_clients, NEVER, dtype=np.int64),
        )

    def observe_presence(
        self, state: PresenceState, rnd: int, present: Ints
    ) -> tuple[PresenceState, Opening | None]:
        if len(present) == 0:
            return state, None
        if state.number < 0:
            return self._open_session(state, rnd, present), None
        was_settled = self._is_settled(state)
        state = _count(state, present)
        members = self._find_members(state)
        if not was_settled:
            state = state._replace(initial=members, changed_for=0)
        opening = self._find_change(state, members) or self._find_alarms(state, rnd, members)
        is_beyond = _share_changed(state.initial, members) > self.tolerance
        state = state._replace(changed_for=state.changed_for + 1 if is_beyond else 0)
        if opening is None:
            return state, None
        return self._open_session(state, rnd, present), opening

    def get_session(self, state: PresenceState, rnd: int) -> Session:
        members = np.flatnonzero(self._find_members(state))
        return Session(state.number, rnd - state.start if state.number >= 0 else 0, members)

    def observe_alarms(self, state: PresenceState, rnd: int, clients: Ints) -> PresenceState:
        if self.alarm_share is None or len(clients) == 0:
            return state
        alarm_rounds = state.alarm_rounds.copy()
        alarm_rounds[clients] = rnd
        return state._replace(alarm_rounds=alarm_rounds)

    def _open_session(self, state: PresenceState, rnd: int, present: Ints) -> PresenceState:
        """Return the state of a new session after its first round."""
        fresh = self.init(len(state.initial))._replace(number=state.number + 1, start=rnd)
        fresh = _count(fresh, present)
        return fresh._replace(initial=self._find_members(fresh))

    def _find_members(self, state: PresenceState) -> Bools:
        """Return (N,) the clients that have been present and have not left."""
        return np.asarray((state.presences > 0) & (state.gap_probs >= self.risk))

    def _is_settled(self, state: PresenceState) -> bool:
        """Return whether nearly all members of the session have been present."""
        return state.unseen_prob <= max(self.tolerance / 10, self.risk)

    def _find_change(self, state: PresenceState, members: Bools) -> Opening | None:
        share = _share_changed(state.initial, members)
        if share <= self.tolerance or state.changed_for + 1 < self.debounce:
            return None
        joined, left = int((members & ~state.initial).sum()), int((state.initial & ~members).sum())
        either = int((members | state.initial).sum())
        reason = (
            f"{share:.0%} of {either} members changed ({joined} joined, {left} left; tolerance "
            f"{self.tolerance:.0%})"
        )
        return Opening(reason, {"joined": joined, "left": left, "share": share})

    def _find_alarms(self, state: PresenceState, rnd: int, members: Bools) -> Opening | None:
        if self.alarm_share is None:
            return None
        recent = state.alarm_rounds >= max(rnd - self.alarm_window, 0)
        number, count = int((recent & members).sum()), int(members.sum())
        if number < self.alarm_share * count or number == 0:
            return None
        reason = f"alarms of {number} of {count} clients in the last {self.alarm_window} rounds"
        return Opening(reason, {"alarms": number, "share": number / count})


def _count(state: PresenceState, present: Ints) -> PresenceState:
    """Return the state after a round in which these clients were present."""
    is_present = np.zeros(len(state.initial), dtype=bool)
    is_present[present] = True
    is_missing = (state.presences > 0) & ~is_present
    # Of n = presences - 1 + absences rounds after its first one, it was present in presences - 1.
    chance = (state.absences + 1) / np.maximum(state.presences + state.absences + 1, 1)
    gap_probs = np.where(is_present, 1.0, state.gap_probs * np.where(is_missing, chance, 1.0))
    presences, absences = state.presences + is_present, state.absences + is_missing
    again = int(np.maximum(presences - 1, 0).sum())
    rate = (again + 1) / (again + int(absences.sum()) + 2)  # of all members together
    return state._replace(
        presences=presences,
        absences=absences,
        gap_probs=gap_probs,
        unseen_prob=state.unseen_prob * (1 - rate),
    )


def _share_changed(initial: Bools, members: Bools) -> float:
    """Return the share of old and new members that are in one of the two sets only."""
    return int((initial ^ members).sum()) / max(int((initial | members).sum()), 1)
