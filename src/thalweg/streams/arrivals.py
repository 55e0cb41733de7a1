"""Arrival processes: the number of samples that arrive at a client in each round."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Ints


class StreamRate(NamedTuple):
    """The parameters of one client's stream that an arrival process uses."""

    client: int
    rows: int  # samples that belong to the client
    rounds: float  # expected number of rounds in which the stream advances
    rate_factor: float = 1.0  # multiplies the client's arrival rate


class ArrivalProcess(Protocol):
    """Protocol of an arrival process: a frozen dataclass.

    A process may request more samples than the client has left; the world then delivers the rest.
    """

    @property
    def stay_length(self) -> int | None:
        """Number of consecutive rounds in which a client is present; None: all rounds."""
        ...

    @property
    def is_at_start(self) -> bool:
        """True if all samples are available before the first round."""
        ...

    def initial_count(self, flow: StreamRate) -> int:
        """Number of samples available before the first round."""
        ...

    def draw_count(self, flow: StreamRate, rnd: int, rng: np.random.Generator) -> int:
        """Number of samples in round `rnd`, counted from the client's first round.

        A negative `rnd` means that the client has not arrived yet.
        """
        ...

    def expected_count(self, flow: StreamRate, rounds: float) -> float:
        """Expected number of samples in the first `rounds` rounds, without the initial ones."""
        ...

    def burst_size(self, flow: StreamRate) -> int:
        """Approximate number of samples in a round with arrivals, which the memory must hold."""
        ...


class ArrivalDefaults:
    """Defaults for processes whose clients are always present and start without samples."""

    @property
    def stay_length(self) -> int | None:
        return None

    @property
    def is_at_start(self) -> bool:
        return False

    def initial_count(self, flow: StreamRate) -> int:
        return 0


@dataclass(frozen=True)
class AtStart(ArrivalDefaults):
    """All samples are available before the first round; nothing arrives later."""

    @property
    def is_at_start(self) -> bool:
        return True

    def initial_count(self, flow: StreamRate) -> int:
        return flow.rows

    def draw_count(self, flow: StreamRate, rnd: int, rng: np.random.Generator) -> int:
        return 0

    def expected_count(self, flow: StreamRate, rounds: float) -> float:
        return 0.0

    def burst_size(self, flow: StreamRate) -> int:
        return flow.rows


@dataclass(frozen=True)
class ConstantRate(ArrivalDefaults):
    """The same number of samples in every round; fractional rates alternate between two numbers.

    >>> flow, rng = StreamRate(client=0, rows=7, rounds=5), np.random.default_rng(0)
    >>> [ConstantRate().draw_count(flow, rnd, rng) for rnd in range(5)]  # 1.4 per round
    [2, 1, 2, 1, 1]
    """

    per_round: float | None = None
    """Samples per round; None: the client's samples divided by its number of rounds."""

    def __post_init__(self) -> None:
        check_ranges(self, per_round="(0, ARRIVALS] or none")

    def draw_count(self, flow: StreamRate, rnd: int, rng: np.random.Generator) -> int:
        if rnd < 0:
            return 0
        rate = _rate(self.per_round, flow)
        return _ceil(rate * (rnd + 1)) - _ceil(rate * rnd)

    def expected_count(self, flow: StreamRate, rounds: float) -> float:
        return _rate(self.per_round, flow) * rounds

    def burst_size(self, flow: StreamRate) -> int:
        return _ceil(_rate(self.per_round, flow))


@dataclass(frozen=True)
class Poisson(ArrivalDefaults):
    """A Poisson-distributed number of samples in every round."""

    rate: float | None = None
    """Mean number per round; None: the client's samples divided by its number of rounds."""

    def __post_init__(self) -> None:
        check_ranges(self, rate="(0, ARRIVALS] or none")

    def draw_count(self, flow: StreamRate, rnd: int, rng: np.random.Generator) -> int:
        return 0 if rnd < 0 else int(rng.poisson(_rate(self.rate, flow)))

    def expected_count(self, flow: StreamRate, rounds: float) -> float:
        return _rate(self.rate, flow) * rounds

    def burst_size(self, flow: StreamRate) -> int:
        return _ceil(_rate(self.rate, flow))


@dataclass(frozen=True)
class Bursts(ArrivalDefaults):
    """Bursts: many samples in one round, none in between.

    Set exactly one of `every` and `probability`. With `every`, client n receives its first burst in
    its round n mod `every` and further bursts every `every` rounds. With `probability`, each round
    contains a burst with this probability.
    """

    size: int | None = None
    """Samples per burst.

    None: large enough to deliver all of the client's samples during the run.
    """
    every: int | None = 10
    probability: float | None = None

    def __post_init__(self) -> None:
        require(
            (self.every is None) != (self.probability is None),
            f"set exactly one of every and probability, got every={self.every}, "
            f"probability={self.probability}.",
        )
        check_ranges(
            self,
            size="[1, ARRIVALS] or none",
            every="[1, inf) or none",
            probability="(0, 1] or none",
        )

    def draw_count(self, flow: StreamRate, rnd: int, rng: np.random.Generator) -> int:
        if self.every is None:
            is_now = rng.random() < (self.probability or 0.0)
        else:
            is_now = rnd % self.every == flow.client % self.every
        return self.burst_size(flow) if is_now and rnd >= 0 else 0

    def expected_count(self, flow: StreamRate, rounds: float) -> float:
        if self.every is None:
            return self.burst_size(flow) * rounds * (self.probability or 0.0)
        ahead = rounds - flow.client % self.every
        return float(self.burst_size(flow) * max(0, _ceil(ahead / self.every)))

    def burst_size(self, flow: StreamRate) -> int:
        if self.size is not None:
            return max(1, _ceil(self.size * flow.rate_factor))
        each = self.probability if self.every is None else 1 / self.every
        bursts = max(1, math.floor(flow.rounds * (each or 0.0) + 1e-9))  # lower bound
        return _ceil(flow.rows / bursts * flow.rate_factor)


@dataclass(frozen=True)
class OneShot(ArrivalDefaults):
    """Each client is present for a few consecutive rounds and receives all its samples.

    Arrival times are spread evenly over the run; the order of the clients is random.
    """

    width: int = 1
    """Number of rounds for which a client is present."""

    def __post_init__(self) -> None:
        check_ranges(self, width="[1, inf)")

    @property
    def stay_length(self) -> int:
        return self.width

    def draw_count(self, flow: StreamRate, rnd: int, rng: np.random.Generator) -> int:
        if not 0 <= rnd < self.width:
            return 0
        each = flow.rows / self.width
        return _ceil(each * (rnd + 1)) - _ceil(each * rnd)

    def expected_count(self, flow: StreamRate, rounds: float) -> float:
        return flow.rows * min(1.0, rounds / self.width)

    def burst_size(self, flow: StreamRate) -> int:
        return _ceil(flow.rows / self.width)


ARRIVALS = {
    "constant": ConstantRate,
    "poisson": Poisson,
    "bursts": Bursts,
    "one-shot": OneShot,
    "at-start": AtStart,
}


def spread_starts(count: int, stay: int, rounds: int, rng: np.random.Generator) -> Ints:
    """(count,) first rounds of clients that stay `stay` rounds, evenly spread, in random order.

    >>> sorted(spread_starts(5, 2, 10, np.random.default_rng(0)).tolist())
    [0, 1, 3, 5, 7]
    """
    return rng.permutation(count) * (max(rounds - stay, 0) + 1) // max(count, 1)


def _rate(given: float | None, flow: StreamRate) -> float:
    each = flow.rows / max(flow.rounds, 1.0) if given is None else given
    return each * flow.rate_factor


def _ceil(value: float) -> int:
    """Round up, with a tolerance for floating-point errors."""
    return math.ceil(value - 1e-9)
