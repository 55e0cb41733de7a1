"""The program that SAW approximates, and its exact solution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import as_array, at_least_zero, fractions, vector

MIN_AVAILABILITY = 1e-9  # minimum availability for double precision


def saw_weights_exact(scores: npt.ArrayLike, availability: npt.ArrayLike, noise: float) -> Floats:
    r"""Weights that minimise `b_term`, the part of the error bound that depends on them.

    .. math::
        \min_p \ \frac{\nu \sum_n p_n^2 q_n + \frac53 \sum_n p_n q_n s_n}{\sum_n p_n q_n},
        \qquad \sum_n p_n = 1, \quad p_n \ge 0

    Gradient noise favours many clients; without noise the client with the smallest score gets all
    weight. The objective is the ratio of a convex and a linear function and is minimised by
    Dinkelbach's iteration: minimise the numerator minus :math:`\mu` times the denominator, and use
    the resulting ratio as the next :math:`\mu`. The values decrease and converge within a few
    iterations.

    Without noise, every division of the weight among clients with the smallest score is optimal;
    they share it equally. Without clients the result is empty.

    Symbols, SFedPO (89) -> here
        :math:`s`, q                -> scores, availability in (0, 1]
        :math:`\nu = L\eta\sigma^2` -> noise

    Differences from the paper: it replaces the ratio by a difference with a manual factor, drops
    :math:`p_n \ge 0`, and derives a two-parameter form from the result, which is `saw_weights`.

    >>> saw_weights_exact([1.0, 1.0, 9.0], [0.5, 0.5, 0.5], noise=0.1).tolist()
    [0.5, 0.5, 0.0]
    """
    s, q = as_array(scores, "scores"), as_array(availability, "availability")
    nu = at_least_zero(noise, "noise")
    if s.ndim != 1 or s.shape != q.shape:
        raise ConfigError(
            "scores and availability must be rows with one entry per client, "
            f"got shapes {s.shape} and {q.shape}."
        )
    if s.size == 0:
        return np.zeros(0)
    s, q = vector(s, "scores"), fractions(q, "availability")
    if q.min() < MIN_AVAILABILITY:
        raise ConfigError(
            f"availability must lie in [{MIN_AVAILABILITY:g}, 1], got {q.min():g}. Remove clients "
            "that never participate."
        )
    excess = s - s.min()  # a constant added to all scores is added to the ratio
    if nu == 0:
        tied = excess == 0
        return np.where(tied, 1 / tied.sum(), 0.0)

    # In units of the noise the problem is (sum p^2 q + sum p q h) / sum p q. Clients with h >= 1
    # + 1/q are never used, because the best ratio and sum p^2 q are at most 1.
    unused = 2 + 2 / q
    h = np.minimum(excess * (5 / 3), nu * unused) / nu  # (N,)
    weights = np.full(s.size, 1 / s.size)
    ratio = _ratio(weights, h, q)
    while True:
        better = _minimise(h - ratio, q)
        lower = _ratio(better, h, q)
        if not lower < ratio:
            return weights
        weights, ratio = better, lower


def _ratio(p: Floats, h: Floats, q: Floats) -> float:
    return float((p * q) @ (p + h)) / float(p @ q)


def _minimise(cost: Floats, q: Floats) -> Floats:
    """The p on the simplex that minimises the sum of p^2 q + p q cost.

    Stationarity gives 2 p = max(level / q - cost, 0). Clients become active in the order of q *
    cost as the level rises, so one sort determines the active clients and the level at which p sums
    to 1.
    """
    entry = q * cost  # (N,) level at which each client becomes active
    order = np.argsort(entry, kind="stable")
    levels = (2 + np.cumsum(cost[order])) / np.cumsum(
        1 / q[order]
    )  # (N,) level if the first k are active
    num_in = np.flatnonzero(levels > entry[order])[-1] + 1
    p = np.maximum(levels[num_in - 1] / q - cost, 0.0) / 2
    weights: Floats = p / p.sum()
    return weights
