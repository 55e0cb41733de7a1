"""Clients with rows of their own, which some have from the start and others receive as time goes by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from thalweg.core.config import check_literals, check_ranges, choice
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats
from thalweg.streams.arrivals import ARRIVALS, ArrivalProcess, ConstantRate, spread_starts
from thalweg.streams.base import Setting
from thalweg.streams.drawing import draw_availability
from thalweg.streams.historical import HistoricalSplit, assign_rows
from thalweg.streams.inflow_world import InflowWorld
from thalweg.streams.partitions import PARTITIONS, Dirichlet, Partition
from thalweg.streams.queues import ClassQueues


@dataclass(frozen=True)
class Inflow:
    """Historical clients, who have all their samples from the start, and fresh ones, who receive them.

    Every sample belongs to at most one client, except with partition=overlap, whose two groups of
    clients both have the samples of the labels that they share. A fresh client's samples arrive as its
    arrival process says, in random order, each of them once; a round's arrivals are spread over its
    ticks. Times of the data set play no part (`Replay` goes by them), and there is exactly one latent
    state. How the samples are dealt, and their rates, depend on the length of the run: another number of
    rounds is another world.

    Symbols, Marfoq et al. (2023) -> here
        M        clients                                   -> num_clients
        M_hist   clients with data from the start          -> historical, as a share of M
        N_hist   their samples                             -> historical_data, as a share of N
        N        samples of all clients                    -> samples
        b_m      samples per round at client m             -> arrivals, rate_spread
        C_m      memory of client m                        -> capacity_of, capacity_spread
    """

    num_clients: int | None = None
    """None: those of the data with partition=groups, else 20."""
    partition: Partition = choice(PARTITIONS, default=Dirichlet())
    """Which samples belong to which client."""
    historical: float = 0.0
    """Share of the clients that have all their samples before the first round: the first ones; with
    partition=groups they are drawn."""
    historical_data: float | None = None
    """Share of the samples that historical clients have: the samples are split at random, and each part
    is dealt to its clients. With partition=groups some samples are left out instead. None: as it falls."""
    samples: int | None = None
    """Samples that take part, drawn at random; none: all."""
    arrivals: ArrivalProcess = choice(ARRIVALS, default=ConstantRate())
    """How many samples arrive at a fresh client in each round."""
    at_end: Literal["stop", "restart"] = "stop"
    """When a client's samples are used up: nothing more arrives, or they start again."""
    capacity_of: Literal["scenario", "own"] = "scenario"
    """scenario: everybody can hold the scenario's capacity; own: a historical client all it has, a
    fresh one what arrives in a round."""
    rate_spread: float = 0.0
    """Fresh clients' rates are multiplied by log-normal factors of mean 1 with this standard deviation
    of their logarithms."""
    capacity_spread: float = 0.0
    """The same for the scenario's capacity."""
    label_change: float = 0.0
    """Probability, per client and round, that its stream turns to another class, drawn in proportion
    to what is left, which then comes first until it is used up. 0: the label mix stays."""
    availability: float = 1.0
    availability_spread: float = 0.0
    absent: Literal["frozen", "collecting"] = "frozen"
    """frozen: a client's stream only moves in rounds it takes part in; collecting: in all rounds."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            num_clients="[1, inf) or none",
            historical="[0, 1]",
            historical_data="[0, 1] or none",
            samples="[1, inf) or none",
            rate_spread="[0, inf)",
            capacity_spread="[0, inf)",
            label_change="[0, 1]",
            availability="(0, 1]",
            availability_spread="[0, inf)",
        )
        require(
            self.capacity_of == "scenario" or self.capacity_spread == 0,
            "capacity_spread changes the scenario's capacity, but with capacity_of=own nobody has it; "
            "use rate_spread, which the memories follow.",
        )

    def build(self, setting: Setting) -> InflowWorld:
        """Deal the rows, and draw what makes clients differ."""
        rng = rng_for(setting.seed, Draw.PARTITION)
        history = HistoricalSplit(self.historical, self.historical_data, self.samples)
        rows, is_historical = assign_rows(self.partition, setting, self.num_clients, history, rng)
        queues = tuple(
            ClassQueues.from_rows(mine, setting.labels, setting.num_classes, rng) for mine in rows
        )
        rng, number = rng_for(setting.seed, Draw.WORLD), len(rows)
        presence = draw_availability(number, self.availability, self.availability_spread, rng)
        rate_factors = _factors(number, self.rate_spread, rng)
        capacities = setting.capacity * _factors(number, self.capacity_spread, rng)
        starts = np.zeros(number, dtype=np.int64)
        if self.arrivals.stay_length is not None:
            fresh = ~is_historical
            starts[fresh] = spread_starts(
                int(fresh.sum()), self.arrivals.stay_length, setting.rounds, rng
            )
        return InflowWorld(
            spec=self,
            setting=setting,
            queues=queues,
            is_historical=is_historical | self.arrivals.is_at_start,
            presence=presence,
            starts=starts,
            rate_factors=rate_factors,
            capacities=np.maximum(np.round(capacities), 1).astype(np.int64),
        )


def _factors(number: int, spread: float, rng: np.random.Generator) -> Floats:
    """(N,) log-normal factors of mean 1."""
    return np.exp(spread * rng.normal(size=number) - spread**2 / 2)
