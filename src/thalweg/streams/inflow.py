"""Clients with their own rows: stored from the start, or arriving over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from thalweg.core.config import UPPER_BOUNDS, check_literals, check_ranges, choice
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
    """Historical clients have all samples from the start; fresh clients receive them over time.

    Every sample belongs to at most one client, except with partition=overlap, where clients of both
    groups have the samples of shared labels. The samples of a fresh client arrive once each, in
    random order, at the rate of its arrival process; the arrivals of a round are spread over its
    ticks. Times of the data set are not used (see `Replay`), and there is exactly one latent state.
    The assignment of samples and the rates depend on the number of rounds: a different length is a
    different world.

    Symbols, Marfoq et al. (2023) -> here
        M        clients                                   -> num_clients
        M_hist   clients with data from the start          -> historical, as a share of M
        N_hist   their samples                             -> historical_data, as a share of N
        N        samples of all clients                    -> samples
        b_m      samples per round at client m             -> arrivals, rate_spread
        C_m      memory of client m                        -> capacity_of, capacity_spread
    """

    num_clients: int | None = None
    """Number of clients; None: those of the data set with partition=groups, else 20."""
    partition: Partition = choice(PARTITIONS, default=Dirichlet())
    """Assignment of samples to clients."""
    historical: float = 0.0
    """Share of the clients that have all samples before the first round: the first ids; with
    partition=groups they are drawn at random.
    """
    historical_data: float | None = None
    """Share of the samples that historical clients have: the samples are split at random and each
    part is partitioned among its clients. With partition=groups, samples are dropped instead. None:
    as the partition gives it.
    """
    samples: int | None = None
    """Number of samples used, drawn at random; None: all."""
    arrivals: ArrivalProcess = choice(ARRIVALS, default=ConstantRate())
    """Number of samples that arrive at a fresh client in each round."""
    at_end: Literal["stop", "restart"] = "stop"
    """When a client's samples are used up: stop, or start again."""
    capacity_of: Literal["scenario", "own"] = "scenario"
    """Memory size. scenario: the scenario's capacity for every client; own: all samples of a
    historical client, and the arrivals of one round of a fresh client.
    """
    rate_spread: float = 0.0
    """Standard deviation of the logarithm of the factor (mean 1) on each fresh client's rate."""
    capacity_spread: float = 0.0
    """The same for the factor on the scenario's capacity."""
    label_change: float = 0.0
    """Probability, per client and round, that the stream switches to another class.

    The class is drawn in proportion to the remaining samples and arrives first until it is used up.
    0: no switches.
    """
    availability: float = 1.0
    availability_spread: float = 0.0
    absent: Literal["frozen", "collecting"] = "frozen"
    """Streams of absent clients. frozen: they pause; collecting: they advance in every round."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            num_clients="[1, CLIENTS] or none",
            historical="[0, 1]",
            historical_data="[0, 1] or none",
            samples="[1, inf) or none",
            rate_spread="[0, 10]",
            capacity_spread="[0, 10]",
            label_change="[0, 1]",
            availability="(0, 1]",
            availability_spread="[0, inf)",
        )
        require(
            self.capacity_of == "scenario" or self.capacity_spread == 0,
            "capacity_spread changes the scenario's capacity, which capacity_of=own does not use; "
            "use rate_spread, which the memory sizes follow.",
        )

    @property
    def needs_class_labels(self) -> bool:
        """Whether the partition or the order of the samples depends on class labels."""
        return self.label_change > 0 or getattr(self.partition, "needs_class_labels", False)

    def build(self, setting: Setting) -> InflowWorld:
        """Assign the rows and draw the differences between clients."""
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
        world = InflowWorld(
            spec=self,
            setting=setting,
            queues=queues,
            is_historical=is_historical | self.arrivals.is_at_start,
            presence=presence,
            starts=starts,
            rate_factors=rate_factors,
            capacities=np.maximum(np.round(capacities), 1).astype(np.int64),
        )
        if self.rate_spread > 0:
            largest = max(world.burst_size(client) for client in range(number))
            require(
                largest <= UPPER_BOUNDS["ARRIVALS"],
                f"with rate_spread={self.rate_spread:g} a client receives {largest:,} samples per "
                f"round, at most {UPPER_BOUNDS['ARRIVALS']:,} are allowed. Reduce rate_spread or "
                "arrivals.",
            )
        return world


def _factors(number: int, spread: float, rng: np.random.Generator) -> Floats:
    """(N,) log-normal factors with mean 1."""
    return np.exp(spread * rng.normal(size=number) - spread**2 / 2)
