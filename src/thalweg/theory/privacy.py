r"""Privacy loss of updates with Gaussian noise (differential privacy).

Symbols, Balle and Wang 2018; Dong, Roth and Su 2022 -> here
    :math:`\varepsilon, \delta`     -> epsilon, delta
    :math:`\Delta`                  -> distance: maximum between vectors of neighbouring data sets
    :math:`\sigma`                  -> noise: standard deviation of the noise on each number
    :math:`\mu = \sqrt T \Delta / \sigma`   T adaptive releases
"""

from __future__ import annotations

import math

from thalweg.core.errors import require

MAX_EPSILON = 1e12  # larger values are meaningless
BISECTION_STEPS = 200  # sufficient for double precision


def gaussian_delta(epsilon: float, noise: float, releases: int = 1, distance: float = 1.0) -> float:
    r"""The smallest :math:`\delta` for an :math:`\varepsilon`; exact, also for several releases.

    .. math::  \delta = \Phi(\mu/2 - \varepsilon/\mu)
               - e^\varepsilon\, \Phi(-\mu/2 - \varepsilon/\mu)

    >>> round(gaussian_delta(1.0, noise=1.0), 6)
    0.126937
    """
    from scipy.special import log_ndtr, ndtr

    require(noise > 0, f"noise must be positive, got {noise}.")
    mu = math.sqrt(releases) * distance / noise
    if mu == 0:
        return 0.0
    # In logarithms, because exp(epsilon) may overflow.
    rest = math.exp(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)))
    return max(float(ndtr(mu / 2 - epsilon / mu)) - rest, 0.0)


def gaussian_epsilon(delta: float, noise: float, releases: int = 1, distance: float = 1.0) -> float:
    r"""The smallest :math:`\varepsilon` for a :math:`\delta`.

    Infinite without noise, 0 without releases.

    >>> round(gaussian_epsilon(1e-5, noise=1.0), 3)
    4.377
    >>> round(gaussian_epsilon(1e-5, noise=10.0, releases=100), 3)  # noise / sqrt(releases) = 1
    4.377
    """
    require(0 < delta < 1, f"delta must lie in (0, 1), got {delta}.")
    if releases == 0:
        return 0.0
    if noise == 0 or gaussian_delta(MAX_EPSILON, noise, releases, distance) > delta:
        return math.inf
    low, high = 0.0, MAX_EPSILON
    if gaussian_delta(low, noise, releases, distance) <= delta:
        return 0.0
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        if gaussian_delta(middle, noise, releases, distance) <= delta:
            high = middle
        else:
            low = middle
    return high
