"""How many samples arrive at a client in each of its rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Ints


class StreamRate(NamedTuple):
    """One client's stream in numbers: all that an arrival process goes by."""

    client: int
    rows: int  # samples of its own
    rounds: float  # in which the stream is expected to move
    rate_factor: float = 1.0  # factor on its rate


class ArrivalProcess(Protocol):
    """How many samples arrive when: a frozen dataclass. What is used up cannot arrive."""

    @property
    def stay_length(self) -> int | None:
        """Consecutive rounds in which a client is here at all; None: in all of them."""
        ...

    @property
    def is_at_start(self) -> bool:
        """Is everything there before the first round?"""
        ...

    def initial_count(self, flow: StreamRate) -> int:
        """Samples that are there before the first round."""
        ...

    def draw_count(self, flow: StreamRate, rnd: int, rng: np.random.Generator) -> int:
        """Samples in round `rnd`, counted from the client's first; negative: not yet here."""
        ...

    def expected_count(self, flow: StreamRate, rounds: float) -> float:
        """Samples expected in the first `rounds` rounds, those of `before` not among them."""
        ...

    def burst_size(self, flow: StreamRate) -> int:
        """Samples in a round that has some, about; what a memory for one round must hold."""
        ...


class ArrivalDefaults:
    """The half of the protocol that is the same for clients who are always here and start with nothing."""

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
    """Everything is there before the first round, and nothing more comes."""

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
    """The same number in every round; of a fraction, one sample more now and then.

    >>> flow, rng = StreamRate(client=0, rows=7, rounds=5), np.random.default_rng(0)
    >>> [ConstantRate().draw_count(flow, rnd, rng) for rnd in range(5)]  # 1.4 per round
    [2, 1, 2, 1, 1]
    """

    per_round: float | None = None
    """None: a client's own samples, spread evenly over its part of the run."""

    def __post_init__(self) -> None:
        _check_rate("per_round", self.per_round)

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
    """A random number in every round, with the same mean."""

    rate: float | None = None
    """Mean per round; None: a client's own samples over its part of the run."""

    def __post_init__(self) -> None:
        _check_rate("rate", self.rate)

    def draw_count(self, flow: StreamRate, rnd: int, rng: np.random.Generator) -> int:
        return 0 if rnd < 0 else int(rng.poisson(_rate(self.rate, flow)))

    def expected_count(self, flow: StreamRate, rounds: float) -> float:
        return _rate(self.rate, flow) * rounds

    def burst_size(self, flow: StreamRate) -> int:
        return _ceil(_rate(self.rate, flow))


@dataclass(frozen=True)
class Bursts(ArrivalDefaults):
    """Many samples at once, and nothing in between.

    Either in every `every`-th round, in which clients take turns: the first burst of client n is in
    its round n mod `every`; or in any round with a `probability`.
    """

    size: int | None = None
    """Samples per burst; None: as many as bring all of a client's own samples in its part of the run."""
    every: int | None = 10
    probability: float | None = None

    def __post_init__(self) -> None:
        require(
            (self.every is None) != (self.probability is None),
            f"bursts come either every so many rounds or with a probability, one of the two; got "
            f"every={self.every}, probability={self.probability}.",
        )
        check_ranges(
            self, size="[1, inf) or none", every="[1, inf) or none", probability="(0, 1] or none"
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
        bursts = max(1, math.floor(flow.rounds * (each or 0.0) + 1e-9))  # at least so many
        return _ceil(flow.rows / bursts * flow.rate_factor)


@dataclass(frozen=True)
class OneShot(ArrivalDefaults):
    """A client is here for a few rounds in a row, in which all its samples arrive, and never again.

    When it comes is spread evenly over the run; the order of the clients is drawn.
    """

    width: int = 1
    """Rounds for which a client stays."""

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
    """(count,) first rounds of clients that stay for a while, evenly over the run, in random order.

    >>> sorted(spread_starts(5, 2, 10, np.random.default_rng(0)).tolist())
    [0, 1, 3, 5, 7]
    """
    return rng.permutation(count) * (max(rounds - stay, 0) + 1) // max(count, 1)


def _rate(given: float | None, flow: StreamRate) -> float:
    each = flow.rows / max(flow.rounds, 1.0) if given is None else given
    return each * flow.rate_factor


def _check_rate(name: str, value: float | None) -> None:
    require(
        value is None or 0 < value < math.inf,
        f"{name} must be positive and finite, or none, got {value}.",
    )


def _ceil(value: float) -> int:
    """Rounded up, but not by rounding errors."""
    return math.ceil(value - 1e-9)
