"""Schedules: which clients are members of the federation in which rounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from thalweg.core.config import UPPER_BOUNDS, check_ranges
from thalweg.core.errors import require
from thalweg.core.registry import plain_text
from thalweg.core.rng import Draw, uniforms_for
from thalweg.core.types import Floats, Ints
from thalweg.streams.sessions import Timetable
from thalweg.streams.trace import Trace

NO_CLIENTS = "-"
CHUNK_SIZE = 4096  # number of clients whose stays are drawn together, to limit memory


@dataclass(frozen=True)
class Alternating:
    """Groups of clients alternate: the first group, the second, ..., then the first again.

    Groups are blocks of ids of nearly equal size; the first groups have one client more if
    necessary.

    Symbols, Chang et al. -> here
        s, S  session                 -> numbered in order; as many as the rounds allow
        T     rounds per session      -> length; lengths for the first sessions, such as pilots
    """

    groups: int = 2
    length: int = 50
    """Rounds per session."""
    lengths: tuple[int, ...] | None = None
    """Rounds of the first sessions; later sessions have `length` rounds."""

    def __post_init__(self) -> None:
        check_ranges(self, groups="[2, inf)", length="[1, inf)")
        require(
            self.lengths is None or all(length >= 1 for length in self.lengths),
            f"all lengths must be at least 1, got {self.lengths}.",
        )
        require(
            self.lengths is None or max(self.lengths, default=1) <= UPPER_BOUNDS["COUNT"],
            f"all lengths must be at most {UPPER_BOUNDS['COUNT']:,}, got {self.lengths}.",
        )

    def timetable(self, num_clients: int, rounds: int, seed: int) -> Timetable:
        starts = _starts(self.lengths or (), self.length, rounds)
        turns = [{number % self.groups} for number in range(len(starts))]
        return _alternate_groups(turns, starts, self.groups, num_clients, rounds)


@dataclass(frozen=True)
class Recurring:
    """A repeating pattern of named groups: ``ABAC`` is A, then B, then A, then C.

    Each letter is a session. With spaces in the pattern, each word is a session of all groups that
    it names (``A AB B``: B joins A, then A leaves). A dash is a period without members. Groups are
    blocks of ids in alphabetical order, of nearly equal size; unused letters are groups that never
    join.
    """

    pattern: str = plain_text(r"[A-Z -]{1,1000}", default="ABAC")
    length: int = 50
    """Rounds per session."""
    groups: int | None = None
    """Number of groups; None: given by the last letter in the alphabet that occurs."""
    tolerance: float = 0.0
    """Share of all old and new members that must differ before a new session begins."""

    def __post_init__(self) -> None:
        check_ranges(self, length="[1, inf)", groups="[1, inf) or none", tolerance="[0, 1]")
        letters = set(self.pattern) - {" ", NO_CLIENTS}
        require(
            bool(letters) and all("A" <= letter <= "Z" for letter in letters),
            "a pattern consists of letters A to Z and dashes, such as ABAC or 'A AB B', got "
            f"{self.pattern!r}.",
        )
        require(
            self.groups is None or self.groups >= self._num_groups,
            f"pattern={self.pattern} names {self._num_groups} groups, but groups={self.groups}.",
        )

    @property
    def _num_groups(self) -> int:
        return max(map(_group_index, self.pattern)) + 1

    def timetable(self, num_clients: int, rounds: int, seed: int) -> Timetable:
        words = self.pattern.split() if " " in self.pattern else list(self.pattern)
        once = [{_group_index(letter) for letter in word if letter != NO_CLIENTS} for word in words]
        starts = _starts((), self.length, rounds)
        turns = [once[number % len(once)] for number in range(len(starts))]
        groups = self.groups or self._num_groups
        return _alternate_groups(turns, starts, groups, num_clients, rounds, self.tolerance)


@dataclass(frozen=True)
class RandomChurn:
    r"""Clients join and leave independently, with the same probabilities in every round.

    Stays and absences have geometrically distributed lengths with means :math:`1/\text{leave}` and
    :math:`1/\text{join}`. The stays of a client depend only on the seed and its id, neither on the
    number of clients nor on the length of the run.
    """

    join: float = 0.02
    """Probability that an absent client joins in the next round; 0: never."""
    leave: float = 0.02
    """Probability that a member leaves after a round; 0: never."""
    present: float | None = None
    """Probability of being a member in the first round.

    None: the stationary value join / (join + leave).
    """
    tolerance: float = 0.0
    """Share of all old and new members that must differ before a new session begins."""

    def __post_init__(self) -> None:
        check_ranges(
            self, join="[0, 1]", leave="[0, 1]", present="[0, 1] or none", tolerance="[0, 1]"
        )
        require(
            self.present is not None or self.join + self.leave > 0,
            "with join=0 and leave=0 the initial share of members must be set (present).",
        )

    def timetable(self, num_clients: int, rounds: int, seed: int) -> Timetable:
        ids = np.arange(num_clients)
        parts = [
            self._stays(ids[some : some + CHUNK_SIZE], rounds, seed)
            for some in range(0, num_clients, CHUNK_SIZE)
        ]
        clients, first, after = np.concatenate(parts, axis=1)
        return Timetable(num_clients, rounds, clients, first, after, self.tolerance)

    def _stays(self, clients: Ints, rounds: int, seed: int) -> Ints:
        """(3, stays) of some clients.

        Clients that need more random numbers start again with twice as many.
        """
        both = self.join + self.leave
        changes = 2 * rounds * self.join * self.leave / both if both else 0.0  # expected number
        count = 3 + math.ceil(changes + 3 * math.sqrt(changes))
        found: list[Ints] = []
        while len(clients):
            uniform = uniforms_for(seed, Draw.SESSIONS, 0, clients.tolist(), count)
            is_there, ends = self._changes(uniform)
            is_done = ends[:, -1] >= rounds
            found.append(_stays_present(clients[is_done], is_there[is_done], ends[is_done], rounds))
            clients, count = clients[~is_done], 2 * count
        return np.concatenate(found, axis=1)

    def _changes(self, uniform: Floats) -> tuple[Ints, Floats]:
        """(n,) initial membership and (n, k) rounds of changes, from uniform numbers (n, 1 + k)."""
        share = self.join / (self.join + self.leave) if self.present is None else self.present
        is_there = (uniform[:, 0] < share).astype(np.int64)
        stretch = np.arange(uniform.shape[1] - 1)[None]
        chance = np.where((stretch + is_there[:, None]) % 2 == 1, self.leave, self.join)
        # A probability of 0 or 1 means forever, or one round.
        with np.errstate(divide="ignore", over="ignore"):
            lengths = np.floor(np.log1p(-uniform[:, 1:]) / np.log1p(-chance)) + 1
            lengths = np.where(chance > 0, lengths, np.inf)
            return is_there, np.cumsum(lengths, axis=1)


SCHEDULES = {
    "alternating": Alternating,
    "recurring": Recurring,
    "random-churn": RandomChurn,
    "trace": Trace,
}


def _stays_present(clients: Ints, is_there: Ints, ends: Floats, rounds: int) -> Ints:
    """(3, stays): the intervals (n, k), each up to its end, in which a client is a member."""
    until = np.minimum(ends, rounds).astype(np.int64)
    since = np.concatenate([np.zeros_like(until[:, :1]), until[:, :-1]], axis=1)
    turn = (np.arange(until.shape[1])[None] + is_there[:, None]) % 2 == 1
    row, stretch = np.nonzero(turn & (since < rounds))
    return np.stack([clients[row], since[row, stretch], until[row, stretch]])


def _starts(first: Sequence[int], length: int, rounds: int) -> list[int]:
    """First rounds of all sessions of a run."""
    starts, start, number = [], 0, 0
    while start < rounds:
        starts.append(start)
        start += first[number] if number < len(first) else length
        number += 1
    return starts


def _alternate_groups(
    turns: Sequence[Iterable[int]],
    starts: Sequence[int],
    groups: int,
    num_clients: int,
    rounds: int,
    tolerance: float = 0.0,
) -> Timetable:
    """Each turn of some groups lasts until the next turn starts."""
    require(
        groups <= num_clients,
        f"{num_clients} clients cannot be divided into {groups} non-empty groups.",
    )
    blocks = np.array_split(np.arange(num_clients), groups)
    spans = list(zip(turns, starts, [*starts[1:], rounds], strict=True))
    stays = [(blocks[group], start, stop) for turn, start, stop in spans for group in turn]
    sizes = [len(block) for block, _, _ in stays]
    return Timetable(
        num_clients,
        rounds,
        np.concatenate([np.empty(0, dtype=np.int64), *(block for block, _, _ in stays)]),
        np.repeat(np.array([start for _, start, _ in stays], dtype=np.int64), sizes),
        np.repeat(np.array([stop for _, _, stop in stays], dtype=np.int64), sizes),
        tolerance,
    )


def _group_index(letter: str) -> int:
    """Position of a letter in the alphabet."""
    return ord(letter) - ord("A")
