"""Learning-rate schedules within a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from thalweg.core.config import check_ranges


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


DECAYS: dict[str, type[LrDecay]] = {"polynomial": PolynomialDecay}
