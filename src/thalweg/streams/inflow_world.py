"""The world built by `Inflow`: presence and arrivals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Arrival, Floats, Ints, Supply
from thalweg.streams.arrivals import ArrivalProcess, AtStart, StreamRate
from thalweg.streams.base import Setting, StateTable
from thalweg.streams.drawing import draw_present, moving_rounds
from thalweg.streams.queues import ClassQueues, QueueState

if TYPE_CHECKING:
    from thalweg.streams.inflow import Inflow


@dataclass(frozen=True, eq=False)
class InflowWorld:
    """Rows of every client, and the differences between clients."""

    spec: Inflow
    setting: Setting
    queues: tuple[ClassQueues, ...]  # N
    is_historical: npt.NDArray[np.bool_]  # (N,)
    presence: Floats  # (N,) probability of being present in a round of the stay
    starts: Ints  # (N,) first round of the stay
    rate_factors: Floats  # (N,) factors on the rates
    capacities: Ints  # (N,) memory sizes, unless capacity_of=own

    @property
    def num_clients(self) -> int:
        return len(self.queues)

    @property
    def ticks(self) -> int:
        return self.setting.ticks

    @property
    def collects_when_absent(self) -> bool:
        return self.spec.absent == "collecting"

    @property
    def has_clients_of_data(self) -> bool:
        return self.spec.partition.is_natural

    @cached_property
    def state_table(self) -> StateTable:
        """One state: the class distribution of all data of the clients."""
        counts = np.sum([mine.sizes for mine in self.queues], axis=0)
        return StateTable((counts / counts.sum())[None], np.ones(1))

    @cached_property
    def mixes(self) -> Floats:
        return np.stack([mine.sizes / max(len(mine.rows), 1) for mine in self.queues])

    @cached_property
    def availability(self) -> Floats:
        """(N,) over the whole run, also for clients that are present for a part of it."""
        stays = np.minimum(self._ends - self.starts, self.setting.rounds)
        availability: Floats = self.presence * stays / self.setting.rounds
        return availability

    @cached_property
    def _ends(self) -> Ints:
        """(N,) round after the last round of each stay."""
        stay = self.spec.arrivals.stay_length
        forever = np.full(self.num_clients, np.iinfo(np.int64).max)
        return (
            forever if stay is None else np.where(self.is_historical, forever, self.starts + stay)
        )

    def present(self, rnd: int) -> Ints:
        here = draw_present(self.presence, self.setting.seed, rnd)
        return here[(self.starts[here] <= rnd) & (rnd < self._ends[here])]

    def true_state_probs(self, client: int) -> Floats:
        return np.ones(1)

    def capacity(self, client: int) -> int:
        if self.spec.capacity_of == "scenario":
            return int(self.capacities[client])
        return max(1, self.burst_size(client))

    def burst_size(self, client: int) -> int:
        """Approximate number of samples in a round with arrivals."""
        return self._process(client).burst_size(self._flow(client))

    def supply(self, client: int) -> Supply:
        """Amount of data; at most what the client owns, unless its rows start again.

        A historical client that cannot store all its rows counts with what it can store.
        """
        flow, process = self._flow(client), self._process(client)
        before = min(process.initial_count(flow), self.capacity(client))
        total = before + process.expected_count(flow, flow.rounds)
        if self.spec.at_end == "stop" or flow.rows == 0:
            total = min(total, flow.rows)
        rounds = self.setting.rounds * float(self.availability[client])
        return Supply(float(total), bool(self.is_historical[client]), rounds)

    def begin(self, client: int) -> tuple[QueueState, Arrival]:
        """Samples available before the first round: all rows of historical clients, else none."""
        rng = rng_for(self.setting.seed, Draw.INITIAL_MEMORY, 0, client)
        mine = self.queues[client]
        before = self._process(client).initial_count(self._flow(client))
        taken, items = mine.take(mine.begin(), before, restarts=False, rng=rng)
        return taken, Arrival(items, 0)

    def emit(
        self, state: QueueState, client: int, stream_round: int
    ) -> tuple[QueueState, list[Arrival]]:
        """The arrivals of a round in equal parts.

        The first ticks have one more sample if necessary.
        """
        rng = rng_for(self.setting.seed, Draw.STREAM, stream_round, client)
        since = (
            stream_round - int(self.starts[client]) if self.collects_when_absent else stream_round
        )
        mine = self.queues[client]
        count = self._process(client).draw_count(self._flow(client), since, rng)
        if self.spec.label_change and rng.random() < self.spec.label_change:
            state = mine.switch_focus(state, rng)
        state, items = mine.take(state, count, self.spec.at_end == "restart", rng)
        return state, [Arrival(part, 0) for part in np.array_split(items, self.ticks)]

    def _process(self, client: int) -> ArrivalProcess:
        return AtStart() if self.is_historical[client] else self.spec.arrivals

    def _flow(self, client: int) -> StreamRate:
        here = self.setting.rounds * float(self.availability[client])
        rounds = moving_rounds(self.setting.rounds, here, self.collects_when_absent)
        return StreamRate(
            client, len(self.queues[client].rows), rounds, float(self.rate_factors[client])
        )
