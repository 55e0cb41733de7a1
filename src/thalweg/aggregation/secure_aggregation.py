"""Secure aggregation: the server learns the sum of the updates, but no single update."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.theory import from_fixed, to_fixed

MAX_WEIGHT = 1 << 24  # of one client
ROUNDING = 1e-6  # relative error of single precision
MAX_CLIENTS = 1 << 14  # in one sum, which then fits into 63 bits
NOT_REVIEWED = "the protocol has not been reviewed externally: docs/secure-aggregation.md"


@dataclass(frozen=True)
class Masked:
    r"""Reveals the weighted sum of a round's updates to the server, but no single update.

    Clients round their updates to integers (multiples of bound / 2^bits) and add masks that cancel
    in the sum:

    .. math::  y_u = w_u x_u + r(b_u) + \sum_{v > u} r(s_{uv}) - \sum_{v < u} r(s_{uv}) \mod 2^{64}

    Symbols, Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
    learning", 2017 -> here
        :math:`w_u, x_u`   -> 1 or the number of samples (by-samples); the rounded update
        :math:`r`          -> a stream of pseudorandom numbers
        :math:`s_{uv}`     -> secret of the clients u and v
        :math:`b_u`        -> secret of client u

    The masks of clients that drop out, and the :math:`b_u` of those that do not, are recovered from
    shares that the other clients hold. Simulations compute the same sum without masks; the result
    is equal bit for bit.

    Clients sign what they add up, and reveal shares only for what enough of them have signed, so
    that a server that sends different values to different clients learns nothing. A server that
    invents clients can learn more, unless devices have a list of trusted keys. The server still
    sees which clients take part, their numbers of samples and their losses. The protocol has not
    been reviewed externally (docs/secure-aggregation.md).

    With bound 1 and 4 bits, 0.26 is rounded to 4 of 16 steps:

    >>> rule = Masked(bound=1.0, bits=4)
    >>> rule.encode_update(np.array([0.26, -5.0], dtype=np.float32), weight=3).tolist()
    [12, -48]
    >>> rule.decode_mean(np.array([12, -48]), weight=3).tolist()
    [0.25, -1.0]
    """

    bound: float = 8.0
    """Values of an update are clipped to [-bound, bound]."""
    bits: int = 24
    """Resolution: 2^bits steps from 0 to the bound."""
    threshold: float = 0.66
    """Share of the cohort that must respond before the sum is revealed. As many colluding clients
    could reveal a mask."""
    min_clients: int = 3
    """Minimum number of clients whose updates are in a sum; a sum of fewer reveals too much about
    each."""

    def __post_init__(self) -> None:
        check_ranges(
            self, bound="(0, inf)", bits="[1, 24]", threshold="(0.5, 1]", min_clients="[3, inf)"
        )

    def required_clients(self, cohort_size: int) -> int:
        """Return how many clients of a cohort must respond.

        >>> [Masked().required_clients(size) for size in (1, 3, 4, 10, 100)]
        [3, 3, 3, 7, 66]
        """
        return max(self.min_clients, math.ceil(self.threshold * cohort_size))

    def encode_update(self, delta: Floats32, weight: int) -> Ints:
        """Return (P,) the integers that one client adds to the sum, before masking."""
        return to_fixed(delta, self.bound, self.bits) * weight

    def decode_mean(self, total: Ints, weight: int) -> Floats32 | None:
        """Return (P,) the mean update, or None if it exceeds the bound and is invalid."""
        mean = from_fixed(total, max(weight, 1), self.bound, self.bits)
        largest = float(np.abs(mean).max(initial=0.0))
        return mean if largest <= self.bound * (1 + ROUNDING) else None


SECURE_AGGREGATIONS = {"masked": Masked}
