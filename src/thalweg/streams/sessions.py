"""Sessions: who belongs to the federation, and when that changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from thalweg.core.types import Floats, Ints, Session


@dataclass(frozen=True, eq=False)
class Timetable:
    """Stays of clients: client i is a member in the rounds from `first` to before `after`.

    A session is a stretch of rounds with the same members; it ends with the first arrival or departure, or, with a
    `tolerance`, when more than that share of all who were or are members differ from those it began with. While
    nobody is a member there is no session; when somebody comes, a new one begins.
    """

    num_clients: int
    rounds: int  # of the run
    clients: Ints  # (stays,)
    first: Ints  # (stays,)
    after: Ints  # (stays,)
    tolerance: float = 0.0

    def members(self, rnd: int) -> Ints:
        """Ids, ascending."""
        return np.unique(self.clients[(self.first <= rnd) & (rnd < self.after)])

    def session(self, rnd: int) -> Session:
        """The session that a round belongs to, or the last one if nobody is here."""
        place = int(np.searchsorted(self._starts, rnd, side="right")) - 1
        age = rnd - int(self._starts[place]) if place >= 0 else 0
        return Session(place, age, self.members(rnd))

    def before(self, rnd: int) -> Ints:
        """Members of the session before that of a round, in its last round; nobody, if there was none."""
        first = rnd - self.session(rnd).age
        for earlier in self._changes[self._changes < first][::-1]:
            if len(members := self.members(int(earlier))):
                return members
        return np.empty(0, dtype=np.int64)

    @cached_property
    def attendance(self) -> Floats:
        """(N,) share of the run's rounds in which each client is a member."""
        rounds = np.minimum(self.after, self.rounds) - np.minimum(self.first, self.rounds)
        return np.bincount(self.clients, rounds, self.num_clients) / self.rounds

    @cached_property
    def _starts(self) -> Ints:
        """(sessions,) their first rounds, ascending."""
        starts: list[int] = []
        then: Ints = np.empty(0, dtype=np.int64)
        for rnd in self._changes:
            now = self.members(int(rnd))
            differing = len(np.setxor1d(then, now)) / max(len(np.union1d(then, now)), 1)
            if len(now) == 0:
                then = now
            elif differing > self.tolerance or len(then) == 0:
                starts.append(int(rnd))
                then = now
        return np.array(starts, dtype=np.int64)

    @cached_property
    def _changes(self) -> Ints:
        """Rounds in which somebody comes or goes."""
        changes = np.unique(np.concatenate([self.first, self.after]))
        return changes[changes < self.rounds]


class Schedule(Protocol):
    """A timetable's configuration: a frozen dataclass that makes it for so many clients and rounds."""

    def timetable(self, num_clients: int, rounds: int, seed: int) -> Timetable: ...
