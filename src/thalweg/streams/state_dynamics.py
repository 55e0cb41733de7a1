"""How the state probabilities of a client change over time, in the world of latent states.

The states that a client can reach lie on a circle of circumference 1, each with an arc as long as
its probability. Without a change over time, each tick draws a point of the circle uniformly. With
one, a tick draws a point of a part of the circle, which moves so that each point is drawn equally
often in the long run: the long-run probabilities are those of the world without a change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats


class StateDynamics(Protocol):
    """Chooses the part of the circle from which the states of a client are drawn."""

    @property
    def length(self) -> float:
        """Length of this part, a number between 0 and 1."""
        ...

    def begin(self, rng: np.random.Generator) -> Any:
        """Return the first position of a client."""
        ...

    def start(self, position: Any) -> float:
        """Return where the part begins at a position, before the first tick."""
        ...

    def move(
        self, position: Any, first_tick: int, ticks: int, rng: np.random.Generator
    ) -> tuple[Any, Floats]:
        """Return the next position, and where the part begins in each of some ticks (T,).

        `first_tick` is the number of ticks of the client's stream before these.
        """
        ...


@dataclass(frozen=True)
class PeriodicStates:
    r"""The state probabilities of a client return after a number of ticks.

    A part of the circle moves once around it in each period. Its position at the start is drawn
    uniformly for each client. In tick t the points that can be drawn are

    .. math::  [\varphi_n + t / P,\; \varphi_n + t / P + L) \mod 1

    Symbols
        P  -> period
        L  -> length

    A quarter of the circle moves by a quarter per tick; the client starts at 0.5:

    >>> dynamics = PeriodicStates(period=4.0, length=0.25)
    >>> _, starts = dynamics.move(0.5, 0, 5, np.random.default_rng(0))
    >>> starts.tolist()
    [0.5, 0.75, 0.0, 0.25, 0.5]
    """

    period: float = 50.0
    """Ticks of the client's stream in a period."""
    length: float = 0.5
    """Share of the circle from which a tick draws its state; small values give few states."""

    def __post_init__(self) -> None:
        check_ranges(self, period="(0, inf)", length="(0, 1)")

    def begin(self, rng: np.random.Generator) -> float:
        return float(rng.random())

    def start(self, position: float) -> float:
        return position

    def move(
        self, position: float, first_tick: int, ticks: int, rng: np.random.Generator
    ) -> tuple[float, Floats]:
        return position, (position + np.arange(first_tick, first_tick + ticks) / self.period) % 1.0


@dataclass(frozen=True)
class SwitchingRegimes:
    r"""The state probabilities of a client are constant for a while, then change at once.

    The circle is divided into `regimes` equal parts. In each tick a client stays in its regime with
    probability `stay`, else it changes to one of the others, all with the same probability. The
    first regime is drawn uniformly. A regime lasts 1 / (1 - stay) ticks on average.

    With ``stay=0`` the two regimes alternate, and the second half of the circle begins at 0.5:

    >>> dynamics = SwitchingRegimes(regimes=2, stay=0.0)
    >>> last, starts = dynamics.move(0, 0, 3, np.random.default_rng(0))
    >>> last, starts.tolist()
    (1, [0.5, 0.0, 0.5])
    """

    regimes: int = 3
    """Number of regimes."""
    stay: float = 0.95
    """Probability that a client stays in its regime at a tick."""

    def __post_init__(self) -> None:
        check_ranges(self, regimes="[2, MODELS]", stay="[0, 1)")

    @property
    def length(self) -> float:
        return 1 / self.regimes

    def begin(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.regimes))

    def start(self, position: int) -> float:
        return position / self.regimes

    def move(
        self, position: int, first_tick: int, ticks: int, rng: np.random.Generator
    ) -> tuple[int, Floats]:
        stays = rng.random(ticks) < self.stay
        jumps = rng.integers(1, self.regimes, ticks)
        positions = (position + np.cumsum(np.where(stays, 0, jumps))) % self.regimes
        return int(positions[-1]), positions / self.regimes


DYNAMICS = {"periodic": PeriodicStates, "regimes": SwitchingRegimes}
