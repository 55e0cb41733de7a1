r"""Staleness: discounts for late updates, which were trained from an older model.

The weights of the recipe are multiplied by the factors and are *not* normalised again:

.. math::  x \leftarrow x + \sum_n p_n\, f(s_n)\, \Delta_n, \qquad \textstyle\sum_n p_n = 1

Symbols: :math:`s_n` is the staleness of update n in rounds, :math:`f` the factor of the rule.

This follows FedBuff (Nguyen et al. 2022), where a buffer of K updates moves the model by
:math:`\frac 1 K \sum f(s_n) \Delta_n`. A round with late updates only therefore makes a short step.
With normalised weights, a single late update would count as much as a new one, whatever the rule.
The disadvantage is that a late update reduces the weights of the new updates before it is
discounted itself. Updates older than `max_staleness` are rejected and do not have this effect.

Late updates are added to the current model, as in FedBuff; FedAsync (Xie et al. 2019) averages
models instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Ints


class Staleness(Protocol):
    """Computes the factors of late updates.

    Implement `max_staleness` and `factor`; no base class is needed. Staleness is counted in rounds:
    an update that was trained in round 3 and arrives in round 5 has staleness 2.
    """

    @property
    def max_staleness(self) -> int | None:
        """Updates with a larger staleness are rejected.

        0 rejects all late updates; None sets no limit except the server's own.
        """
        ...

    def factor(self, staleness: Ints) -> Floats:
        """Return (K,) the factors of the weights, in [0, 1].

        The factor is 1 for staleness 0 and does not increase with staleness.
        """
        ...


@dataclass(frozen=True)
class RejectLate:
    r"""Rejects all late updates.

    .. math::  f(0) = 1, \qquad f(s) = 0 \text{ for } s > 0

    >>> RejectLate().factor(np.array([0, 1, 7])).tolist()
    [1.0, 0.0, 0.0]
    """

    accepts_late_updates = False

    @property
    def max_staleness(self) -> int:
        return 0

    def factor(self, staleness: Ints) -> Floats:
        return np.where(staleness == 0, 1.0, 0.0)


@dataclass(frozen=True)
class ConstantDiscount:
    r"""Multiplies the weights of late updates by a constant.

    .. math::  f(0) = 1, \qquad f(s) = c \text{ for } s > 0

    Symbols: c -> share.

    >>> ConstantDiscount(0.5).factor(np.array([0, 1, 7])).tolist()
    [1.0, 0.5, 0.5]
    """

    share: float = 1.0
    """Factor of late updates; 1: they count like all others."""
    max_staleness: int | None = None
    """Updates with a larger staleness, in rounds, are rejected; none: no limit."""

    def __post_init__(self) -> None:
        check_ranges(self, share="[0, 1]", max_staleness="[1, inf) or none")

    def factor(self, staleness: Ints) -> Floats:
        return np.where(staleness == 0, 1.0, self.share)


@dataclass(frozen=True)
class PolynomialDiscount:
    r"""Discounts late updates by a power of their staleness.

    .. math::  f(s) = (1 + s)^{-a}

    Symbols, Xie et al. 2019 and Nguyen et al. 2022 -> here
        a                 -> power
        :math:`t - \tau`  -> s; the papers count server steps, which are rounds here

    An update that is three rounds late has the factor :math:`4^{-1/2} = 0.5`:

    >>> PolynomialDiscount().factor(np.array([0, 3, 8])).round(6).tolist()
    [1.0, 0.5, 0.333333]
    """

    power: float = 0.5
    max_staleness: int | None = None
    """Updates with a larger staleness, in rounds, are rejected; none: no limit."""

    def __post_init__(self) -> None:
        check_ranges(self, power="[0, inf)", max_staleness="[1, inf) or none")

    def factor(self, staleness: Ints) -> Floats:
        factors: Floats = np.power(1.0 + staleness, -self.power)
        return factors


@dataclass(frozen=True)
class HingeDiscount:
    r"""Discounts late updates beyond a tolerated staleness.

    .. math::  f(s) = \frac{1}{1 + a \max(s - b, 0)}

    Symbols, Xie et al. 2019 -> here: a, b -> slope, after. Differs from the paper: the factor
    multiplies the weight of an update, not that of a whole model.

    >>> HingeDiscount(after=1, slope=1.0).factor(np.array([0, 1, 2, 4])).tolist()
    [1.0, 1.0, 0.5, 0.25]
    """

    after: int = 1
    """Staleness, in rounds, up to which updates count in full."""
    slope: float = 1.0
    max_staleness: int | None = None
    """Updates with a larger staleness, in rounds, are rejected; none: no limit."""

    def __post_init__(self) -> None:
        check_ranges(self, after="[0, inf)", slope="[0, inf)", max_staleness="[1, inf) or none")

    def factor(self, staleness: Ints) -> Floats:
        return 1.0 / (1.0 + self.slope * np.maximum(staleness - self.after, 0))
