"""Sessions: the members of the federation over time."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats, Ints, Session, Supplies


@dataclass(frozen=True, eq=False)
class Timetable:
    """Stays of clients: a client is a member from round `first` to the round before `after`.

    A session is a period with the same members. It ends with the first arrival or departure or,
    with a `tolerance`, when more than that share of all old and new members differ from the initial
    members. There is no session while there are no members; the next arrival begins a new session,
    also if the same clients return.

    Stays of one client must not overlap; adjacent stays are joined. They are ordered by `first`.

    >>> clients, first, after = np.array([[0, 0, 4], [0, 5, 9], [1, 2, 5]]).T
    >>> table = Timetable(2, 10, clients, first, after)
    >>> [table.members(rnd).tolist() for rnd in (0, 2, 4, 5, 9)]
    [[0], [0, 1], [1], [0], []]
    >>> [(table.session(rnd).number, table.session(rnd).age) for rnd in (0, 1, 2, 4, 5, 9)]
    [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (3, 4)]
    """

    num_clients: int
    rounds: int  # length of the run
    clients: Ints  # (stays,)
    first: Ints  # (stays,)
    after: Ints  # (stays,)
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        check_ranges(self, num_clients="[1, inf)", rounds="[1, inf)", tolerance="[0, 1]")
        stays = (self.clients, self.first, self.after)
        clients, first, after = (np.asarray(column, dtype=np.int64) for column in stays)
        require(
            clients.ndim == 1 and clients.shape == first.shape == after.shape,
            f"every stay needs a client, a first round and an end, got shapes {clients.shape}, "
            f"{first.shape}, {after.shape}.",
        )
        _check_stays(clients, first, after, self.num_clients)
        tidied = _merge_stays(clients, first, after, self.rounds)
        for name, column in zip(("clients", "first", "after"), tidied, strict=True):
            object.__setattr__(self, name, column)

    def members(self, rnd: int) -> Ints:
        """Ids of the members, ascending."""
        begun = int(np.searchsorted(self.first, rnd, side="right"))
        is_member = np.zeros(self.num_clients, dtype=np.bool_)
        is_member[self.clients[:begun][self.after[:begun] > rnd]] = True
        return np.flatnonzero(is_member)

    def session(self, rnd: int) -> Session:
        """The session of a round.

        Without members, the last session, or number -1 before the first.
        """
        number = int(np.searchsorted(self.starts, rnd, side="right")) - 1
        age = 0
        if number >= 0:
            age = min(rnd, int(self._ends[number])) - int(self.starts[number])
        return Session(number, age, self.members(rnd))

    @cached_property
    def starts(self) -> Ints:
        """(sessions,) first round of every session of the run, ascending."""
        counts = self._counts
        changes = np.flatnonzero(self._has_change)
        if self.tolerance == 0:
            return changes[counts[changes] > 0]
        return self._starts_beyond_tolerance(changes)

    def previous_members(self, rnd: int) -> Ints:
        """Members of the previous session in its last round; empty if there was none."""
        number = self.session(rnd).number
        return self.members(int(self._ends[number - 1]) - 1 if number > 0 else -1)

    @cached_property
    def attendance(self) -> Floats:
        """(N,) share of the run's rounds in which each client is a member."""
        rounds = np.minimum(self.after, self.rounds) - np.minimum(self.first, self.rounds)
        return np.bincount(self.clients, rounds, self.num_clients) / self.rounds

    @property
    def checksum(self) -> int:
        """Checksum of all fields, to detect a different timetable when a run is resumed."""
        total = zlib.crc32(repr((self.num_clients, self.rounds, self.tolerance)).encode())
        for column in (self.clients, self.first, self.after):
            total = zlib.crc32(column.tobytes(), total)
        return total

    @cached_property
    def _ends(self) -> Ints:
        """(sessions,) round after the last round of each session, possibly beyond the run."""
        empty = np.flatnonzero(self._has_change & (self._counts == 0))
        ends = np.append(np.sort(np.concatenate([self.starts, empty])), np.iinfo(np.int64).max)
        return ends[np.searchsorted(ends, self.starts, side="right")]

    @cached_property
    def _counts(self) -> Ints:
        """(rounds,) number of members."""
        change = self._per_round(self.first) - self._per_round(self.after)
        return np.cumsum(change)[: self.rounds]

    @cached_property
    def _has_change(self) -> npt.NDArray[np.bool_]:
        """(rounds,) True if a client joins or leaves.

        Stays of one client are never adjacent, so changes do not cancel out.
        """
        comings_and_goings = self._per_round(self.first) + self._per_round(self.after)
        changed: npt.NDArray[np.bool_] = comings_and_goings[: self.rounds] > 0
        return changed

    def _per_round(self, when: Ints) -> Ints:
        return np.bincount(np.minimum(when, self.rounds), minlength=self.rounds + 1)

    def _starts_beyond_tolerance(self, changes: Ints) -> Ints:
        """Iterate over the changes.

        `differing` counts the clients in exactly one of the two sets.
        """
        starts: list[int] = []
        leaving = np.argsort(self.after, kind="stable")
        comes = np.split(self.clients, np.searchsorted(self.first, [*changes, self.rounds]))[1:-1]
        goes = np.split(
            self.clients[leaving],
            np.searchsorted(self.after[leaving], [*changes, self.rounds]),
        )[1:-1]
        now = np.zeros(self.num_clients, dtype=np.bool_)
        then, count_then, differing = now.copy(), 0, 0
        for rnd, come, go in zip(changes.tolist(), comes, goes, strict=True):
            now[come], now[go] = True, False
            differing += int(np.where(then[come], -1, 1).sum() + np.where(then[go], 1, -1).sum())
            count = int(self._counts[rnd])
            either = (count + count_then + differing) // 2
            if count and (count_then == 0 or differing > self.tolerance * either):
                starts.append(rnd)
            elif count:
                continue
            then, count_then, differing = now.copy(), count, 0
        return np.array(starts, dtype=np.int64)


class Schedule(Protocol):
    """Configuration of a timetable: a frozen dataclass that builds it."""

    def timetable(self, num_clients: int, rounds: int, seed: int) -> Timetable: ...


def scale_supplies(supplies: Supplies, attendance: Floats, collects_when_absent: bool) -> Supplies:
    """Amounts of data of clients that are members for a share (N,) of the run.

    Data that would arrive during absence are lost unless clients collect them.
    """
    stays_whole = supplies.is_historical | collects_when_absent
    share = np.where(stays_whole, np.sign(attendance), attendance)
    return Supplies(supplies.total * share, supplies.is_historical, supplies.rounds * attendance)


def _check_stays(clients: Ints, first: Ints, after: Ints, num_clients: int) -> None:
    if len(clients) == 0:
        return
    require(
        bool(clients.min() >= 0 and clients.max() < num_clients),
        f"stays must have clients 0 to {num_clients - 1}, got {clients.min()} to {clients.max()}.",
    )
    require(
        bool(first.min() >= 0 and (after > first).all()),
        "a stay must begin in round 0 or later and last at least one round.",
    )


def _merge_stays(clients: Ints, first: Ints, after: Ints, rounds: int) -> tuple[Ints, Ints, Ints]:
    """Stays within the run, ordered by first round; adjacent stays of one client are joined."""
    begun = first < rounds
    clients, first, after = clients[begun], first[begun], after[begun]
    order = np.argsort(clients * rounds + first, kind="stable")  # usually already ordered
    clients, first, after = clients[order], first[order], after[order]
    is_same = clients[1:] == clients[:-1]
    overlaps = is_same & (first[1:] < after[:-1])
    for client in clients[1:][overlaps][:1]:
        raise ConfigError(f"stays of client {client} overlap; it must leave before it joins again.")
    touches = is_same & (first[1:] == after[:-1])
    begins, ends = np.append(True, ~touches)[: len(first)], np.append(~touches, True)[: len(first)]
    clients, first, after = clients[begins], first[begins], after[ends]
    order = np.argsort(first, kind="stable")
    return clients[order], first[order], after[order]
