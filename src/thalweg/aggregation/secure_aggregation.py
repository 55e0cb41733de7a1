"""What the server may see of a round's updates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.theory import from_fixed, to_fixed

MAX_WEIGHT = 1 << 24  # of one client
ROUNDING = 1e-6  # of single precision
MAX_CLIENTS = 1 << 14  # in one sum, so that it fits into 63 bits


@dataclass(frozen=True)
class Masked:
    r"""The server sees the weighted sum of a round's updates and no single one.

    Updates become whole numbers of steps of bound / 2^bits, and clients send them with masks that cancel in the
    sum (Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", 2017):

    .. math::  y_u = w_u x_u + r(b_u) + \sum_{v > u} r(s_{uv}) - \sum_{v < u} r(s_{uv}) \mod 2^{64}

    with :math:`r` a stream of random numbers, :math:`s_{uv}` what u and v alone know, and :math:`b_u` known to u.
    The masks of those who vanish, and :math:`b_u` of those who do not, come out of shares that the others hold.
    In a simulation nobody has anything to hide, and the same sum is made without masks, to the bit.

    Against a server that is curious and keeps to the rules. One that invents clients, or tells each of them other
    things, can learn more; and it still sees who takes part, how many samples they hold, and their losses.

    Symbols -> here: :math:`w_u` -> 1, or samples held (by-samples).
    """

    bound: float = 8.0
    """Numbers of an update beyond it are cut to it."""
    bits: int = 24
    """Steps from 0 to the bound, as a power of two."""
    threshold: float = 0.66
    """Share of the clients that must be heard for their sum to be opened; so many together could open a mask."""
    min_clients: int = 3
    """Clients in a sum: of fewer it would say too much."""

    def __post_init__(self) -> None:
        check_ranges(
            self, bound="(0, inf)", bits="[1, 24]", threshold="(0.5, 1]", min_clients="[2, inf)"
        )

    def required_clients(self, asked: int) -> int:
        """Clients that must be heard of so many.

        >>> [Masked().required_clients(asked) for asked in (1, 3, 4, 10, 100)]
        [3, 3, 3, 7, 66]
        """
        return max(self.min_clients, math.ceil(self.threshold * asked))

    def encode_update(self, delta: Floats32, weight: int) -> Ints:
        """(P,) what one client adds to the sum."""
        return to_fixed(delta, self.bound, self.bits) * weight

    def decode_mean(self, total: Ints, weight: int) -> Floats32 | None:
        """(P,) the mean update; none: nobody can have sent this."""
        mean = from_fixed(total, max(weight, 1), self.bound, self.bits)
        largest = float(abs(mean).max(initial=0.0))
        return mean if largest <= self.bound * (1 + ROUNDING) else None


SECURE_AGGREGATIONS = {"masked": Masked}
