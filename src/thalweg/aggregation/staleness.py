r"""How much an update counts that was trained from an older model than the present one.

The weights of the recipe are multiplied by the factors and *not* made to sum to one again:

.. math::  x \leftarrow x + \sum_n p_n\, f(s_n)\, \Delta_n, \qquad \textstyle\sum_n p_n = 1

as in FedBuff (Nguyen et al. 2022), where a buffer of K updates moves the model by :math:`\frac 1 K \sum f(s_n)
\Delta_n`, and in FedAsync (Xie et al. 2019), where one late model is mixed in with less weight. So a round in
which old updates are all that came makes a short step; made to sum to one, a single old update would count as
much as a new one, and no rule could say otherwise. The price: old updates take their share from the new ones of
the round before they are counted less, and a very old one is hardly more than a loss of that share. That is what
`max_staleness` is for: older ones are refused, and what is refused takes nothing from anybody.

Late updates are added to the model as it is now, as in FedBuff; FedAsync mixes models instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Ints


class Staleness(Protocol):
    """Says what late updates count. Any object of this shape will do.

    Staleness is counted in rounds: an update that was trained in round 3 and comes in round 5 has 2.
    """

    @property
    def max_staleness(self) -> int | None:
        """Updates that are staler are refused; 0: all late ones; none: no limit but the server's patience."""
        ...

    def factor(self, staleness: Ints) -> Floats:
        """(K,) in [0, 1], by which the weights are multiplied; 1 where staleness is 0, never more for more."""
        ...


@dataclass(frozen=True)
class RejectLate:
    """What comes after its round was closed does not count at all."""

    @property
    def max_staleness(self) -> int:
        return 0

    def factor(self, staleness: Ints) -> Floats:
        return np.where(staleness == 0, 1.0, 0.0)


@dataclass(frozen=True)
class ConstantDiscount:
    """A late update counts a fixed share of what it would have counted, however late it is.

    >>> ConstantDiscount(0.5).factor(np.array([0, 1, 7])).tolist()
    [1.0, 0.5, 0.5]
    """

    share: float = 1.0
    """One: late updates count like any other."""
    max_staleness: int | None = None
    """Rounds; an update that is staler is refused."""

    def __post_init__(self) -> None:
        check_ranges(self, share="[0, 1]", max_staleness="[1, inf) or none")

    def factor(self, staleness: Ints) -> Floats:
        return np.where(staleness == 0, 1.0, self.share)


@dataclass(frozen=True)
class PolynomialDiscount:
    r"""A late update counts :math:`(1 + s)^{-a}`, for a staleness of s rounds.

    Symbols, Xie et al. 2019 and Nguyen et al. 2022 -> here
        a             -> power
        :math:`t - \tau`  -> the staleness; they count steps of the server, which are rounds here

    >>> PolynomialDiscount().factor(np.array([0, 3, 8])).round(6).tolist()
    [1.0, 0.5, 0.333333]
    """

    power: float = 0.5
    max_staleness: int | None = None
    """Rounds; an update that is staler is refused."""

    def __post_init__(self) -> None:
        check_ranges(self, power="[0, inf)", max_staleness="[1, inf) or none")

    def factor(self, staleness: Ints) -> Floats:
        factors: Floats = np.power(1.0 + staleness, -self.power)
        return factors


@dataclass(frozen=True)
class HingeDiscount:
    r"""A late update counts in full up to some staleness, and beyond it :math:`1 / (1 + a (s - b))`.

    Symbols, Xie et al. 2019 -> here
        a, b  -> slope, after

    >>> HingeDiscount(after=1, slope=1.0).factor(np.array([0, 1, 2, 4])).tolist()
    [1.0, 1.0, 0.5, 0.25]
    """

    after: int = 1
    """Rounds of staleness that cost nothing."""
    slope: float = 1.0
    max_staleness: int | None = None
    """Rounds; an update that is staler is refused."""

    def __post_init__(self) -> None:
        check_ranges(self, after="[0, inf)", slope="[0, inf)", max_staleness="[1, inf) or none")

    def factor(self, staleness: Ints) -> Floats:
        return 1.0 / (1.0 + self.slope * np.maximum(staleness - self.after, 0))
