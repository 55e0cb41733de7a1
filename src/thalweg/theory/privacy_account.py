r"""Privacy loss of several releases with Gaussian and Laplace noise (Renyi differential privacy).

Symbols, Mironov 2017; Wang, Balle and Kasiviswanathan 2019 -> here
    :math:`\alpha`                     -> order
    :math:`\varepsilon(\alpha)`        -> rdp: one number for each of `ORDERS`; sums over releases
    :math:`\Delta / \sigma`            -> mu of a Gaussian release
    :math:`\Delta / b`                 -> epsilon of a Laplace release
    :math:`\gamma = m / n`             -> share of the clients that are drawn
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from thalweg.core.errors import require
from thalweg.core.types import Floats
from thalweg.theory.privacy import gaussian_epsilon

ORDERS: tuple[int, ...] = (*range(2, 65), 80, 96, 128, 192, 256, 512)
"""The orders at which Renyi divergences are computed. Any subset gives a valid bound."""


def gaussian_rdp(mu: float, orders: Sequence[float] = ORDERS) -> Floats:
    r"""Return the divergence of a Gaussian release, :math:`\alpha \mu^2 / 2`.

    >>> gaussian_rdp(2.0, [2, 3]).tolist()
    [4.0, 6.0]
    """
    return np.asarray(orders, dtype=np.float64) * mu**2 / 2


def laplace_rdp(epsilon: float, orders: Sequence[float] = ORDERS) -> Floats:
    r"""Return the divergence of a Laplace release that is :math:`\varepsilon`-private.

    .. math::  \frac{1}{\alpha - 1} \log\Big(\frac{\alpha}{2\alpha - 1} e^{(\alpha-1)\varepsilon}
               + \frac{\alpha - 1}{2\alpha - 1} e^{-\alpha\varepsilon}\Big)

    This is that of one number that changes by :math:`\Delta`. It is convex in
    :math:`\varepsilon` and 0 at 0, so that several numbers that change by :math:`\Delta` in L1
    together have at most this divergence.

    At order 2 with epsilon ln 2: log(2/3 * 2 + 1/3 * 1/4) = log(17/12).

    >>> bool(np.isclose(laplace_rdp(np.log(2), [2])[0], np.log(17 / 12)))
    True
    """
    alpha = np.asarray(orders, dtype=np.float64)
    up = np.log(alpha / (2 * alpha - 1)) + (alpha - 1) * epsilon
    down = np.log((alpha - 1) / (2 * alpha - 1)) - alpha * epsilon
    divergence: Floats = np.logaddexp(up, down) / (alpha - 1)
    return divergence


@lru_cache(maxsize=256)
def _sampled_rdp(mu: float, share: float) -> tuple[float, ...]:
    from scipy.special import gammaln

    bounds = []
    for order in ORDERS:
        j = np.arange(2, order + 1)
        log_choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
        terms = math.log(2) + (j - 1) * j * mu**2 / 2  # 2 exp((j - 1) rdp(j))
        terms[0] = min(terms[0], math.log(4) + _log_expm1(mu**2))
        total = np.logaddexp.reduce(
            np.concatenate([[0.0], terms + j * math.log(share) + log_choose])
        )
        bounds.append(min(float(total) / (order - 1), order * mu**2 / 2))
    return tuple(bounds)


def sampled_gaussian_rdp(mu: float, share: float) -> Floats:
    r"""Return the divergence of a Gaussian release of m clients drawn from n, for `ORDERS`.

    The m clients are drawn uniformly without replacement, the result does not say who was drawn,
    and neighbouring data sets differ in the data of one client (Theorem 9 of Wang et al.):

    .. math::  \varepsilon'(\alpha) \le \frac{1}{\alpha - 1} \log\Big(1
               + \gamma^2 \tbinom{\alpha}{2} \min\{4 (e^{\mu^2} - 1), 2 e^{\mu^2}\}
               + \sum_{j=3}^{\alpha} \gamma^j \tbinom{\alpha}{j} 2 e^{j (j-1) \mu^2 / 2}\Big)

    It is never larger than the divergence without sampling. At order 2, mu = 1 and a tenth of the
    clients: log(1 + 0.01 * 2 e).

    >>> bool(np.isclose(sampled_gaussian_rdp(1.0, 0.1)[0], np.log(1 + 0.02 * np.e)))
    True
    """
    require(0 < share <= 1, f"share must lie in (0, 1], got {share}.")
    return gaussian_rdp(mu) if share == 1 else np.array(_sampled_rdp(mu, share))


def rdp_epsilon(rdp: Floats, delta: float, orders: Sequence[float] = ORDERS) -> float:
    r"""Return an :math:`\varepsilon` for a :math:`\delta`, given a divergence for each order.

    .. math::  \varepsilon = \min_\alpha \varepsilon(\alpha) + \log(1 - 1/\alpha)
               - \frac{\log(\alpha\,\delta)}{\alpha - 1}

    Proposition 12 of Canonne, Kamath and Steinke, 2020.

    >>> round(rdp_epsilon(gaussian_rdp(1.0), delta=1e-5), 3)  # exact: 4.377
    4.753
    """
    require(0 < delta < 1, f"delta must lie in (0, 1), got {delta}.")
    alpha = np.asarray(orders, dtype=np.float64)
    bounds = rdp + np.log1p(-1 / alpha) - np.log(alpha * delta) / (alpha - 1)
    return max(float(bounds.min()), 0.0) if rdp.any() else 0.0


@dataclass(frozen=True)
class PrivacyCost:
    """What some releases disclose; costs of further releases are added.

    The releases may depend on each other. Two Gaussian releases and one Laplace release:

    >>> cost = PrivacyCost(mu_squared=0.25).times(2) + PrivacyCost(laplace={0.5: 1})
    >>> cost.mu_squared, dict(cost.laplace)
    (0.5, {0.5: 1})
    >>> PrivacyCost(laplace={0.5: 3}).epsilon(delta=1e-5)
    1.5
    """

    mu_squared: float = 0.0
    """Of all Gaussian releases: the sum of (largest change / standard deviation) squared."""
    laplace: Mapping[float, int] = field(default_factory=dict)
    """How many Laplace releases there were, by their epsilon."""

    @classmethod
    def unlimited(cls) -> PrivacyCost:
        """Return the cost of a release without noise."""
        return cls(mu_squared=math.inf)

    def __add__(self, other: PrivacyCost) -> PrivacyCost:
        laplace = dict(self.laplace)
        for epsilon, count in other.laplace.items():
            laplace[epsilon] = laplace.get(epsilon, 0) + count
        return PrivacyCost(self.mu_squared + other.mu_squared, laplace)

    def times(self, releases: int) -> PrivacyCost:
        """Return the cost of as many releases of this kind."""
        if releases == 0:
            return PrivacyCost()
        laplace = {epsilon: count * releases for epsilon, count in self.laplace.items()}
        return PrivacyCost(self.mu_squared * releases, laplace)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of all releases together; infinite without noise.

        It is the smallest of three valid bounds: the exact value of the Gaussian releases plus the
        sum of the Laplace epsilons, and the composition of all by Renyi divergences.
        """
        if math.isinf(self.mu_squared):
            return math.inf
        pure = math.fsum(epsilon * count for epsilon, count in self.laplace.items())
        gaussian = 0.0
        if self.mu_squared > 0:
            gaussian = gaussian_epsilon(delta, noise=1.0, distance=math.sqrt(self.mu_squared))
        if not self.laplace:
            return gaussian
        rdp = gaussian_rdp(math.sqrt(self.mu_squared))
        for epsilon, count in self.laplace.items():
            rdp = rdp + count * laplace_rdp(epsilon)
        return min(gaussian + pure, rdp_epsilon(rdp, delta))


def _log_expm1(value: float) -> float:
    """Return log(exp(value) - 1) without overflow; minus infinity at 0."""
    return value + math.log(-math.expm1(-value)) if value > 0 else -math.inf
