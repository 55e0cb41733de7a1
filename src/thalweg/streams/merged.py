"""All clients of a world as one learner, for training in one place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.types import Arrival, Floats, Ints, Supply
from thalweg.streams.base import StateTable, World
from thalweg.streams.sessions import Timetable

NOT_TESTED = -1  # owner of samples that arrived before the round


class MergedState(NamedTuple):
    """The streams of all clients."""

    streams: tuple[Any, ...]  # by client
    stream_rounds: Ints  # (N,) rounds of each stream that are over
    has_joined: Ints  # (N,) 1 if the samples with which the client starts were delivered
    num_collected: int  # samples that were delivered so far


@dataclass(frozen=True, eq=False)
class MergedWorld:
    """A world with one client, which receives the samples of all clients of another world.

    In a round it receives the arrivals of the clients that are present and members of the session,
    tick by tick. Samples that reached a client while it was absent are delivered with its next
    arrivals. The learner starts with the first samples of all clients (with sessions: of the
    members of the first round). Its memory has the sum of the capacities.

    There is one latent state, because the arrivals of a tick come from clients in different states.
    """

    world: World
    timetable: Timetable | None = None

    num_clients = 1
    collects_when_absent = True  # no client present: the round is empty
    has_clients_of_data = False

    @property
    def ticks(self) -> int:
        return self.world.ticks

    @cached_property
    def state_table(self) -> StateTable:
        table = self.world.state_table
        share = table.importance / table.importance.sum()
        return StateTable((share @ table.histograms)[None], np.ones(1))

    @property
    def availability(self) -> Floats:
        return np.ones(1)

    @property
    def mixes(self) -> Floats:
        mean: Floats = self.world.mixes.mean(axis=0, keepdims=True)
        return mean

    def present(self, rnd: int) -> Ints:
        return np.zeros(min(1, len(self.present_clients(rnd))), dtype=np.int64)

    def present_clients(self, rnd: int) -> Ints:
        """Ids of the clients of the other world that are present in a round, ascending."""
        present = self.world.present(rnd)
        if self.timetable is None:
            return present
        return np.intersect1d(present, self.timetable.members(rnd), assume_unique=True)

    def capacity(self, client: int) -> int:
        return int(self._capacities.sum())

    def present_share(self, rnd: int) -> float:
        """Share of the memory that belongs to the clients that are present in a round."""
        return float(self._capacities[self.present_clients(rnd)].sum() / self._capacities.sum())

    def supply(self, client: int) -> Supply:
        supplies = [self.world.supply(each) for each in range(self.world.num_clients)]
        return Supply(
            sum(each.total for each in supplies),
            all(each.is_historical for each in supplies),
            max(each.rounds for each in supplies),
        )

    def true_state_probs(self, client: int) -> Floats:
        return np.ones(1)

    def begin(self, client: int) -> tuple[MergedState, Arrival]:
        starts = [self.world.begin(each) for each in range(self.world.num_clients)]
        members = np.arange(len(starts)) if self.timetable is None else self.timetable.members(0)
        has_joined = np.zeros(len(starts), dtype=np.int64)
        has_joined[members] = 1
        items = [starts[each][1].items[: self.world.capacity(each)] for each in members.tolist()]
        rows = np.concatenate([np.empty(0, dtype=np.int64), *items])
        streams = tuple(state for state, _ in starts)
        stream_rounds = np.zeros(len(starts), dtype=np.int64)
        return MergedState(streams, stream_rounds, has_joined, len(rows)), Arrival(rows, 0)

    def emit(
        self, state: MergedState, client: int, stream_round: int
    ) -> tuple[MergedState, list[Arrival]]:
        streams, clocks = list(state.streams), state.stream_rounds.copy()
        has_joined = state.has_joined.copy()
        items: list[list[Ints]] = [[] for _ in range(self.ticks)]
        owners: list[list[int]] = [[] for _ in range(self.ticks)]

        def deliver(tick: int, rows: Ints, owner: int) -> None:
            items[tick].append(rows)
            owners[tick] += [owner] * len(rows)

        for each in self.present_clients(stream_round).tolist():
            if not has_joined[each]:
                start = self.world.begin(each)[1].items[: self.world.capacity(each)]
                deliver(0, start, NOT_TESTED)
                has_joined[each] = 1
            while self.world.collects_when_absent and clocks[each] < stream_round:
                streams[each], missed = self.world.emit(streams[each], each, int(clocks[each]))
                for arrival in missed:
                    deliver(0, arrival.items, NOT_TESTED)
                clocks[each] += 1
            streams[each], arrivals = self.world.emit(streams[each], each, int(clocks[each]))
            for tick, arrival in enumerate(arrivals):
                deliver(tick, arrival.items, each)
            clocks[each] += 1
        merged = [
            Arrival(
                np.concatenate([np.empty(0, dtype=np.int64), *rows]),
                0,
                np.array(whose, dtype=np.int64),
            )
            for rows, whose in zip(items, owners, strict=True)
        ]
        total = state.num_collected + sum(len(arrival.items) for arrival in merged)
        return MergedState(tuple(streams), clocks, has_joined, total), merged

    @cached_property
    def _capacities(self) -> Floats:
        number = self.world.num_clients
        return np.array([self.world.capacity(each) for each in range(number)], dtype=np.float64)
