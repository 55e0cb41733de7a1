"""Importance of clients with stored data and clients with streaming data, from the error bound."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import (
    Bools,
    at_least_zero,
    count,
    distribution,
    fractions,
    mask,
    one_of,
    positive,
)

MassStrategy = Literal["uniform", "historical", "fresh"]

MAX_RATIO = 1e17  # for larger ratios the optimum equals the shares in double precision


def psi(
    importance: npt.ArrayLike, shares: npt.ArrayLike, historical: npt.ArrayLike, ratio: float
) -> float:
    r"""The part of the error bound that the clients' importance changes, in units of c1.

    .. math::
        \psi(p) = \sqrt{\textstyle\sum_{m \text{ fresh}} p_m^2}
                + \rho \sqrt{\textstyle\sum_m p_m^2 / n_m}

    The first term is the optimization error: gradients on streaming samples are noisy. The second
    is the generalisation error: few samples with a large importance represent the population badly.
    It is infinite if a client without samples has a positive importance.

    Symbols, data streams (19) -> here
        p, n                       -> importance and shares (both divided by their sum)
        fresh                      -> not historical: clients with streaming samples
        :math:`\rho = c_2 / c_1`   -> ratio, see `importance_ratio`
        c0                         -> omitted; it does not depend on p

    >>> round(psi([0.25, 0.75, 0, 0], [1, 3, 3, 3], [True, True, False, False], 0.4), 6)
    0.632456
    """
    n, old = _clients(shares, historical)
    p = distribution(importance, "importance", n.size)
    rho = at_least_zero(ratio, "ratio")
    if p[n == 0].any():
        return math.inf
    there = n > 0
    return float(np.linalg.norm(p[~old]) + rho * np.linalg.norm(p[there] / np.sqrt(n[there])))


def optimal_importance(
    shares: npt.ArrayLike,
    historical: npt.ArrayLike,
    ratio: float,
    *,
    fresh_at_once: float | None = None,
) -> Floats:
    r"""Importance of each client that minimises `psi`, exactly.

    With some :math:`v \ge 0`

    .. math::
        p_m \propto n_m \text{ (historical)}, \qquad
        p_m \propto n_m \frac{v}{v + n_m} \text{ (fresh)}, \qquad
        v \sqrt{\textstyle\sum p_m^2 / n_m} = \rho \sqrt{\textstyle\sum_{\text{fresh}} p_m^2}

    The two sides, in terms of the unnormalised p, cross once as v grows; bisection finds the
    crossing. At v = 0 streaming data are ignored, which is optimal if and only if :math:`\rho \le
    \sqrt{n_{hist} / M_{fresh}}`, where :math:`n_{hist}` is the historical clients' share of all
    samples and :math:`M_{fresh}` the number of fresh clients with samples. As :math:`\rho` grows
    the optimum approaches the shares; it equals them for ``ratio=math.inf`` and without fresh
    clients. Without historical clients v > 0; ``ratio=0`` then gives equal importance to all
    clients with samples. Clients without samples get 0.

    `fresh_at_once` is the average number of fresh clients that are present at the same time. The
    fresh term is then that of this many clients, and :math:`\rho \sqrt{k / M_{fresh}}` replaces
    :math:`\rho`.

    Symbols, data streams (19) -> here
        p, n, :math:`\rho`  -> the result, shares (divided by their sum), ratio
        k                   -> fresh_at_once; default: all fresh clients

    Differences from the paper: it suggests a numerical minimiser, whose result is the same. k is
    not in the paper, but some of its figures cannot be reproduced without it.

    >>> fresh_last = [True, True, False, False]
    >>> optimal_importance([1, 3, 3, 3], fresh_last, ratio=0.4).round(6).tolist()
    [0.25, 0.75, 0.0, 0.0]
    >>> optimal_importance([1, 3, 3, 3], fresh_last, ratio=0.6).round(6)
    array([0.186603, 0.559808, 0.126795, 0.126795])
    """
    n, old = _clients(shares, historical)
    rho = math.inf if ratio == math.inf else at_least_zero(ratio, "ratio")
    coming = ~old & (n > 0)
    rho *= math.sqrt(_num_at_once(fresh_at_once, coming, old) / max(int(coming.sum()), 1))
    if not coming.any() or rho > MAX_RATIO:
        return n
    mass, sizes = float(n[old].sum()), n[coming]
    v = _find_crossing(mass, sizes, rho)
    p = np.where(old, n, 0.0)
    # Without historical clients v may be zero: then it only scales p and cancels.
    p[coming] = sizes / (v + sizes) * (v if mass > 0 else 1.0)
    return distribution(p, "importance")


def historical_mass(historical_share: float, num_fresh: int, ratio: float) -> float:
    r"""Total importance of historical clients in `optimal_importance`; equal fresh clients.

    .. math::
        p_{hist} = a + \sqrt{ab}\,\frac{\kappa}{\sqrt{1 - \kappa^2}}, \qquad
        \kappa = \frac{1}{\rho}\sqrt{\frac{ab}{M_{fresh}}}
        \qquad \text{if } \rho > \sqrt{a / M_{fresh}}, \text{ else } 1

    Symbols, data streams -> here
        a = :math:`n_{hist}`, b = 1 - a     -> historical_share, their share of all samples
        :math:`M_{fresh}`, :math:`\rho`     -> num_fresh, ratio

    >>> round(historical_mass(0.2, 25, ratio=0.15), 4)  # CIFAR-10 in the paper's tables: .45
    0.4522
    """
    a = float(fractions([historical_share], "historical_share")[0])
    M, rho = count(num_fresh, "num_fresh"), at_least_zero(ratio, "ratio")
    if a == 0 or a == 1:
        return a
    if rho <= math.sqrt(a / M):
        return 1.0
    kappa = math.sqrt(a * (1 - a) / M) / rho
    return min(a + math.sqrt(a * (1 - a)) * kappa / math.sqrt(1 - kappa**2), 1.0)


def grid_importance(
    shares: npt.ArrayLike, historical: npt.ArrayLike, mass: float | MassStrategy
) -> Floats:
    """Importance of each client for a given total mass of the historical clients.

    Within both groups importance is proportional to the number of samples. The mass is a number
    from 0 to 1 or a strategy: ``"historical"`` is 1 and ignores streaming data, ``"fresh"`` is 0
    and ignores stored data, ``"uniform"`` makes all samples equally important.

    >>> grid_importance([1, 3, 3, 3], [True, True, False, False], 0.8).round(6).tolist()
    [0.2, 0.6, 0.1, 0.1]
    >>> grid_importance([1, 3, 3, 3], [True, True, False, False], "uniform").tolist()
    [0.1, 0.3, 0.3, 0.3]
    """
    n, old = _clients(shares, historical)
    if isinstance(mass, str):
        one_of(mass, ("uniform", "historical", "fresh"), "strategy")
        if mass == "uniform":
            return n
        mass = 1.0 if mass == "historical" else 0.0
    h = float(fractions([mass], "mass")[0])
    p = np.zeros(n.size)
    for group, part, name in ((old, h, "historical"), (~old, 1 - h, "fresh")):
        if part == 0:
            continue
        if not n[group].any():
            raise ConfigError(
                f"{name} clients must have a mass of {part:g}, but none of them has samples."
            )
        p[group] = part * n[group] / n[group].sum()
    return p


def _clients(shares: npt.ArrayLike, historical: npt.ArrayLike) -> tuple[Floats, Bools]:
    n = distribution(shares, "shares")
    return n, mask(historical, "historical", n.size)


def _num_at_once(fresh_at_once: float | None, coming: Bools, old: Bools) -> float:
    if fresh_at_once is None:
        return float(coming.sum())
    k = positive(fresh_at_once, "fresh_at_once")
    if k > (~old).sum():
        raise ConfigError(
            f"fresh_at_once must be at most {(~old).sum()}, the fresh clients, got {k:g}."
        )
    return min(k, float(coming.sum()))  # clients without samples do not count


def _find_crossing(mass: float, sizes: Floats, rho: float) -> float:
    """The v at which the two sides cross, or 0 if they do not cross."""

    def too_small(v: float) -> bool:
        reach, kept = sizes / (v + sizes), v / (v + sizes)  # (F,) each, together one
        optimization, generalisation = (reach**2).sum(), mass + (sizes * kept**2).sum()
        return rho * math.sqrt(optimization) > math.sqrt(generalisation)

    # At the upper end the left side is at most 1/4, and the right side at least 2/3.
    low, high = 0.0, 2 * float(sizes.max()) + 4 * rho * math.sqrt((sizes**2).sum())
    if not too_small(low):
        return low
    while low < (middle := (low + high) / 2) < high:
        if too_small(middle):
            low = middle
        else:
            high = middle
    return high
