"""Replay of a data set in time order: user rows, clients and times."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Arrival, Floats, Ints, Supply
from thalweg.streams.base import Setting, StateTable
from thalweg.streams.drawing import class_mixes, draw_availability, draw_present, moving_rounds

DEFAULT_CLIENTS = 10  # of data without a client column
TARGET_ROUNDS = 100  # in which all rows arrive if `arrivals` is not given


@dataclass(frozen=True)
class Replay:
    """Each client replays its own rows in time order.

    Clients are those of the data set. Without a client column, the rows are divided among
    `num_clients` clients (`division`). Latent states are unknown, so there is exactly one.

    In a tick every client gets the same number of samples (`arrivals`), or all samples of a time
    interval of fixed length (`every`). With `every`, a client whose stream stops while it is absent
    has its own clock.
    """

    num_clients: int | None = None
    """Number of clients for data without a client column; None: 10."""
    division: Literal["contiguous", "interleaved"] = "contiguous"
    """Rows of clients if there is no client column. contiguous: each client has another period, and
    all periods are replayed at the same time, so that clients train with later rows before earlier
    rows of other clients are predicted. interleaved (data of the user): rows in turn, so that all
    clients are at the same time."""
    arrivals: int = 32
    """Samples per tick; 0 (data of the user): so many that all rows arrive in about 100 rounds."""
    every: float | None = None
    """Length of the time interval per tick, in the unit of the data set's times.

    All clients use the same clock, which starts at a multiple of it. None: a fixed number of
    samples.
    """
    at_end: Literal["restart", "stop"] = "stop"
    """When a client's rows are used up: start again, so that rows repeat, or stop."""
    availability: float = 0.5
    availability_spread: float = 0.0
    absent: Literal["frozen", "collecting"] = "frozen"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            num_clients="[1, CLIENTS] or none",
            arrivals="[0, ARRIVALS]",
            every="(0, inf) or none",
            availability="(0, 1]",
            availability_spread="[0, inf)",
        )

    def choose_arrivals(self, num_rows: int, client: Ints | None, ticks: int) -> Replay:
        """Return the same world with a number of samples per tick.

        >>> Replay(num_clients=2, arrivals=0).choose_arrivals(1000, None, 1).arrivals
        5
        """
        if self.arrivals > 0 or self.every is not None:
            return replace(self, arrivals=self.arrivals or Replay.arrivals)
        largest = self._largest_client(num_rows, client)
        return replace(self, arrivals=max(-(-largest // (TARGET_ROUNDS * ticks)), 1))

    def _largest_client(self, num_rows: int, client: Ints | None) -> int:
        """Rows of the client with most rows."""
        if client is not None:
            return int(np.bincount(client).max())
        return -(-num_rows // (self.num_clients or DEFAULT_CLIENTS))

    def count_rounds(
        self, num_rows: int, client: Ints | None, time: Floats | None, ticks: int
    ) -> int:
        """Number of rounds until all rows have arrived, on average if clients may be absent.

        >>> Replay(num_clients=2, arrivals=10, availability=1.0).count_rounds(100, None, None, 1)
        5
        """
        if self.every is not None and time is not None:
            num_ticks = int(time.max() // self.every - time.min() // self.every) + 1
        else:
            num_ticks = -(-self._largest_client(num_rows, client) // self.arrivals)
        is_paused = self.absent == "frozen" and self.every is None
        return math.ceil(num_ticks / ticks / (self.availability if is_paused else 1.0))

    def build(self, setting: Setting) -> ReplayWorld:
        require(self.arrivals > 0, "arrivals=0 is chosen by make_plan; expected at least 1 here.")
        labels, group, time = setting.labels, setting.client, setting.time
        require(
            self.every is None or time is not None,
            f"every={self.every} is a time interval, but the data set has no times; remove it and "
            "set the number of samples per tick (arrivals).",
        )
        in_time = np.arange(len(labels)) if time is None else np.argsort(time, kind="stable")
        if group is None:
            num_clients = self.num_clients or DEFAULT_CLIENTS
            require(
                num_clients <= len(labels),
                f"{len(labels)} rows cannot be divided among {num_clients} clients.",
            )
            if self.division == "interleaved":
                rows = tuple(in_time[client::num_clients] for client in range(num_clients))
            else:
                rows = tuple(np.array_split(in_time, num_clients))
        else:
            num_clients = setting.count_clients()
            require(
                self.num_clients in (None, num_clients),
                f"the data set has {num_clients} clients, so num_clients={self.num_clients} is not "
                "possible; remove num_clients (--clients of thalweg serve).",
            )
            by_client = in_time[np.argsort(group[in_time], kind="stable")]
            ends = np.cumsum(np.bincount(group, minlength=num_clients))
            rows = tuple(np.split(by_client, ends[:-1]))
        rng = rng_for(setting.seed, Draw.WORLD)
        availability = draw_availability(
            num_clients, self.availability, self.availability_spread, rng
        )
        counts = np.bincount(labels, minlength=setting.num_classes)
        state_table = StateTable((counts / counts.sum())[None], np.ones(1))
        return ReplayWorld(self, setting, rows, availability, state_table)


class Cursor(NamedTuple):
    """Number of rows that a client has read."""

    position: int


@dataclass(frozen=True, eq=False)
class ReplayWorld:
    """The world built by `Replay`."""

    spec: Replay
    setting: Setting
    rows: tuple[Ints, ...]  # N arrays in time order
    availability: Floats  # (N,)
    state_table: StateTable

    @property
    def ticks(self) -> int:
        return self.setting.ticks

    @property
    def num_clients(self) -> int:
        return len(self.rows)

    @property
    def collects_when_absent(self) -> bool:
        return self.spec.absent == "collecting"

    @cached_property
    def mixes(self) -> Floats:
        return class_mixes(self.rows, self.setting.labels, self.setting.num_classes)

    @property
    def has_clients_of_data(self) -> bool:
        return self.setting.client is not None

    def capacity(self, client: int) -> int:
        return self.setting.capacity

    def supply(self, client: int) -> Supply:
        """The same number of samples in every round, or until the rows are used up."""
        here = self.setting.rounds * float(self.availability[client])
        num_rounds = moving_rounds(self.setting.rounds, here, self.collects_when_absent)
        own = len(self.rows[client])
        if self.spec.every is None:
            total = num_rounds * self.ticks * self.spec.arrivals
        else:
            times, rest = divmod(int(num_rounds * self.ticks), self._num_intervals)
            total = float(times * own + self._interval_bounds(client, rest)[0])
        if self.spec.at_end == "stop" or own == 0:
            total = min(total, own)
        return Supply(total, False, here)

    def present(self, rnd: int) -> Ints:
        return draw_present(self.availability, self.setting.seed, rnd)

    def true_state_probs(self, client: int) -> Floats:
        return np.ones(1)

    def begin(self, client: int) -> tuple[Cursor, Arrival]:
        """A client starts without samples."""
        return Cursor(0), Arrival(np.empty(0, dtype=np.int64), 0)

    def emit(self, state: Cursor, client: int, stream_round: int) -> tuple[Cursor, list[Arrival]]:
        if self.spec.every is not None:
            return state, [
                self._arrival_in(client, stream_round * self.ticks + tick)
                for tick in range(self.ticks)
            ]
        mine, step = self.rows[client], self.spec.arrivals
        arrivals, position = [], state.position
        for _ in range(self.ticks):
            ahead = position + np.arange(step)
            if self.spec.at_end == "restart" and len(mine):
                ahead %= len(mine)
            arrivals.append(Arrival(mine[ahead[ahead < len(mine)]], 0))
            position += step
        return Cursor(position), arrivals

    # --- arrivals by time interval ---

    def _arrival_in(self, client: int, stretch: int) -> Arrival:
        """Samples of one time interval, counted from the first."""
        if self.spec.at_end == "restart":
            stretch %= self._num_intervals
        first, last = self._interval_bounds(client, stretch)
        return Arrival(self.rows[client][first:last], 0)

    def _interval_bounds(self, client: int, number: int) -> tuple[int, int]:
        """First position and end position of a time interval among the rows of a client."""
        start, every, _ = self._clock
        edges = start + every * np.array([number, number + 1])
        first, last = np.searchsorted(self._times[client], edges)
        return int(first), int(last)

    @property
    def _num_intervals(self) -> int:
        """Number of intervals until the rows of all clients are used up."""
        start, every, end = self._clock
        return int((end - start) // every) + 1

    @cached_property
    def _clock(self) -> tuple[float, float, float]:
        """Start of the first interval, length of an interval, and time of the last row."""
        time, every = self.setting.time, self.spec.every
        assert time is not None
        assert every is not None
        return float(time.min() // every * every), every, float(time.max())

    @cached_property
    def _times(self) -> tuple[Floats, ...]:
        time = self.setting.time
        assert time is not None
        return tuple(time[mine] for mine in self.rows)
