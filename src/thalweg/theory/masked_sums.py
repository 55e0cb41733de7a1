r"""Secure aggregation: fixed-point numbers for masking, and secret sharing.

Symbols, Bonawitz et al. 2017; Shamir 1979 -> here
    :math:`x_u`     -> numbers (P,) of one client in fixed-point representation
    :math:`n, t`    -> number of shares of a secret, and number of shares needed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from thalweg.core.errors import require
from thalweg.core.types import Floats32, Ints

PRIME = 2**521 - 1  # of the finite field of the shares
SHARE_BYTES = 66
KEY_BYTES = 32
NODE_KEY_BYTES = 49  # a point of the curve P-384, compressed
SIGNATURE_BYTES = 96
SEALED_SHARES_BYTES = 2 * SHARE_BYTES + 16  # two encrypted shares
MAX_SECRET_BYTES = 64  # bytes


def to_fixed(numbers: Floats32, bound: float, bits: int) -> Ints:
    """Integers in units of `bound` / 2^`bits`; values beyond the bound are clipped.

    >>> to_fixed(np.array([0.5, -3.0, 0.001], dtype=np.float32), bound=2.0, bits=4).tolist()
    [4, -16, 0]
    """
    scaled = np.clip(numbers.astype(np.float64), -bound, bound) * (2.0**bits / bound)
    return np.rint(scaled).astype(np.int64)


def from_fixed(total: Ints, weight: int, bound: float, bits: int) -> Floats32:
    """Mean of numbers whose weighted sum is `total`.

    >>> from_fixed(np.array([4 - 16]), weight=2, bound=2.0, bits=4).tolist()
    [-0.75]
    """
    return (total * (bound / 2.0**bits / weight)).astype(np.float32)


def split_secret(
    secret: bytes, number: int, threshold: int, draw: Callable[[int], int]
) -> list[bytes]:
    """Shares 1 to `number` of a secret; any `threshold` of them recover it, fewer reveal nothing.

    `draw(k)` is the k-th coefficient of the polynomial, k from 1: an unpredictable integer.

    >>> halves = split_secret(b"sun", number=3, threshold=2, draw=lambda k: 12345)
    >>> recover_secret({1: halves[0], 3: halves[2]}, length=3)
    b'sun'
    """
    require(
        len(secret) <= MAX_SECRET_BYTES,
        f"a secret has at most {MAX_SECRET_BYTES} bytes, got {len(secret)}.",
    )
    require(
        1 <= threshold <= number,
        f"threshold must be from 1 to the number of shares, {number}, got {threshold}.",
    )
    coefficients = [int.from_bytes(secret, "big")] + [draw(k) % PRIME for k in range(1, threshold)]
    return [
        _evaluate_polynomial(coefficients, position).to_bytes(SHARE_BYTES, "big")
        for position in range(1, number + 1)
    ]


def recover_secret(shares: Mapping[int, bytes], length: int) -> bytes | None:
    """Recover a secret of `length` bytes from shares by number.

    None: the shares are inconsistent.
    """
    secret = 0
    for position, share in shares.items():
        weight = 1
        for other in shares:
            if other != position:
                weight = weight * other * pow(other - position, -1, PRIME) % PRIME
        secret = (secret + weight * int.from_bytes(share, "big")) % PRIME
    return secret.to_bytes(length, "big") if secret < 256**length else None


def _evaluate_polynomial(coefficients: list[int], position: int) -> int:
    """Value of a polynomial at a position."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * position + coefficient) % PRIME
    return value
