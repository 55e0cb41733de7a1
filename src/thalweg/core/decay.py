"""Learning-rate schedules of clients and server, by the number of rounds of a session.

Without sessions the whole run is one session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from thalweg.core.config import check_ranges, choice, convert_parts


class LrDecay(Protocol):
    """A learning-rate schedule. Implement `factor`; no base class is needed."""

    def factor(self, age: int) -> float:
        """Return the factor on the learning rate after `age` rounds of the session."""
        ...


@dataclass(frozen=True)
class PolynomialDecay:
    r"""Polynomial decay: lower the learning rate from its full value to a share of it.

    .. math::  \eta(t) / \eta_0 = (1 - m) (1 - t/T)^p + m

    Symbols, warm-start study of clients that come and go -> here
        t                                -> age
        T, p                             -> rounds, power
        :math:`m = \eta_{min} / \eta_0`  -> floor

    The schedule starts again with every session; after `rounds` rounds the rate stays at the floor.
    Without sessions the whole run is one session.

    >>> decay = PolynomialDecay(power=1.0, floor=0.6, rounds=50)
    >>> [round(decay.factor(age), 6) for age in (0, 25, 50, 99)]
    [1.0, 0.8, 0.6, 0.6]
    """

    power: float = 0.9
    floor: float = 0.6
    rounds: int = 50

    def __post_init__(self) -> None:
        check_ranges(self, power="(0, inf)", floor="[0, 1]", rounds="[1, inf)")

    def factor(self, age: int) -> float:
        left = max(0.0, 1 - age / self.rounds)
        return float((1 - self.floor) * left**self.power + self.floor)


@dataclass(frozen=True)
class CosineDecay:
    r"""Cosine decay: lower the learning rate slowly at first and at the end, as half a cosine wave.

    .. math::  \eta(t) / \eta_0 = m + (1 - m) \frac{1 + \cos(\pi t / T)}{2}

    Symbols, Loshchilov and Hutter (2017) -> here
        t                                -> age
        T                                -> rounds
        :math:`m = \eta_{min} / \eta_0`  -> floor

    The schedule starts again with every session; after `rounds` rounds the rate stays at the floor.

    >>> decay = CosineDecay(rounds=100)
    >>> [round(decay.factor(age), 6) for age in (0, 50, 100, 120)]
    [1.0, 0.5, 0.0, 0.0]
    """

    rounds: int = 50
    """Rounds until the learning rate reaches the floor."""
    floor: float = 0.0
    """Smallest factor."""

    def __post_init__(self) -> None:
        check_ranges(self, rounds="[1, inf)", floor="[0, 1]")

    def factor(self, age: int) -> float:
        progress = min(age / self.rounds, 1.0)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class StepwiseDecay:
    r"""Stepwise decay: multiply the learning rate by a factor after every few rounds.

    .. math::  \eta(t) / \eta_0 = \gamma^{\lfloor t / s \rfloor}

    Symbols, as in ``torch.optim.lr_scheduler.StepLR`` -> here
        t                -> age
        s                -> every
        :math:`\gamma`   -> gamma

    The schedule starts again with every session. With ``every=1`` it is exponential decay.

    >>> decay = StepwiseDecay(every=20, gamma=0.5)
    >>> [decay.factor(age) for age in (0, 19, 20, 45)]
    [1.0, 1.0, 0.5, 0.25]
    """

    every: int = 20
    """Rounds between two changes."""
    gamma: float = 0.5
    """Factor of one change."""

    def __post_init__(self) -> None:
        check_ranges(self, every="[1, inf)", gamma="(0, 1]")

    def factor(self, age: int) -> float:
        return float(self.gamma ** (age // self.every))


DECAYS: dict[str, type[LrDecay]] = {
    "polynomial": PolynomialDecay,
    "cosine": CosineDecay,
    "stepwise": StepwiseDecay,
}


@dataclass(frozen=True)
class Warmup:
    r"""Warm-up: raise the learning rate linearly to its full value, then follow another schedule.

    .. math::
        \eta(t) / \eta_0 = f + (1 - f) \frac{t}{W} \quad (t < W), \qquad
        \eta(t) / \eta_0 = \mathrm{then}(t - W) \quad (t \ge W)

    Symbols
        t   -> age
        W   -> rounds
        f   -> start

    The schedule starts again with every session. Without `then` the full rate is kept.

    >>> warmup = Warmup(rounds=4, start=0.2, then=StepwiseDecay(every=1, gamma=0.5))
    >>> [round(warmup.factor(age), 6) for age in (0, 1, 2, 4, 5)]
    [0.2, 0.4, 0.6, 1.0, 0.5]
    """

    rounds: int = 5
    """Rounds until the full learning rate."""
    start: float = 0.1
    """Factor in the first round."""
    then: LrDecay | None = choice(DECAYS, default=None)
    """Schedule after the warm-up; none: constant."""

    def __post_init__(self) -> None:
        convert_parts(self)
        check_ranges(self, rounds="[1, inf)", start="(0, 1]")

    def factor(self, age: int) -> float:
        if age < self.rounds:
            return self.start + (1 - self.start) * age / self.rounds
        return 1.0 if self.then is None else self.then.factor(age - self.rounds)


DECAYS["warmup"] = Warmup
