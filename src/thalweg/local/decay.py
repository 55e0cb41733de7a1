"""How a client's learning rate falls while a session lasts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from thalweg.core.config import check_ranges


class LrDecay(Protocol):
    """A schedule of the learning rate. Any object of this shape will do."""

    def factor(self, age: int) -> float:
        """What the learning rate is multiplied by after `age` rounds of the session."""
        ...


@dataclass(frozen=True)
class PolynomialDecay:
    r"""From the whole learning rate down to a share of it, by a power of the time that is left.

    .. math::  \eta(t) / \eta_0 = (1 - m) (1 - t/T)^p + m

    Symbols, as the study of clients that come and go writes them -> here
        t               -> age
        T, p            -> rounds, power
        :math:`m = \eta_{min} / \eta_0`  -> floor

    It starts again with every session; one that outlasts `rounds` goes on at the floor. Without sessions the run
    is the session.

    >>> falls = PolynomialDecay(floor=0.6, rounds=50)
    >>> [round(0.001 * falls.factor(age), 9) for age in (0, 1, 25, 49, 50, 99)]
    [0.001, 0.000992793, 0.000814355, 0.00061183, 0.0006, 0.0006]
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
