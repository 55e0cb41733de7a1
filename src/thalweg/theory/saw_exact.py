"""The program that SAW approximates, and its exact solution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import as_array, at_least_zero, fractions, vector

MIN_AVAILABILITY = (
    1e-9  # availability below which the ratio cannot be minimised in double precision
)


def saw_weights_exact(scores: npt.ArrayLike, availability: npt.ArrayLike, noise: float) -> Floats:
    r"""The weights that minimise `b_term`, the part of the error bound that depends on them.

    .. math::
        \min_p \ \frac{\nu \sum_n p_n^2 q_n + \frac53 \sum_n p_n q_n s_n}{\sum_n p_n q_n},
        \qquad \sum_n p_n = 1, \quad p_n \ge 0

    Gradient noise rewards sharing the weight among many clients; without it everything goes to the
    client with the smallest score. It is the ratio of a convex and a linear function, and solved by
    Dinkelbach's iteration: guess the ratio :math:`\mu`, minimise the numerator minus :math:`\mu`
    times the denominator, take the ratio reached as the next guess. The guesses fall, and settle
    within a few rounds.

    Without noise every division of the weight among clients with exactly the smallest score is
    optimal; they share it equally. Without clients there are no weights.

    Symbols, SFedPO (89) -> here
        :math:`s`, q                -> scores, availability in (0, 1]
        :math:`\nu = L\eta\sigma^2` -> noise

    Differs from the paper: it replaces the ratio by a difference with a hand-set factor, drops
    :math:`p_n \ge 0`, and reads a two-parameter form off the result, which is `saw_weights`.

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
            f"availability must lie in [{MIN_AVAILABILITY:g}, 1], got {q.min():g}. Leave clients that never "
            "come out of the optimisation."
        )
    excess = s - s.min()  # adding a constant to all scores adds one to the ratio
    if nu == 0:
        tied = excess == 0
        return np.where(tied, 1 / tied.sum(), 0.0)

    # In units of the noise the problem is (sum p^2 q + sum p q h) / sum p q. No client with
    # h >= 1 + 1/q is ever used, because the best ratio is at most 1 and sum p^2 q is as well.
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
    """The p on the simplex with the smallest sum of p^2 q + p q cost.

    Stationarity gives 2 p = max(level / q - cost, 0). Clients enter in the order of q * cost as the
    level rises, so one sort finds how many are in, and with them the level at which p sums to 1.
    """
    entry = q * cost  # (N,) the level at which each client enters
    order = np.argsort(entry, kind="stable")
    levels = (2 + np.cumsum(cost[order])) / np.cumsum(1 / q[order])  # (N,) if the first k are in
    num_in = np.flatnonzero(levels > entry[order])[-1] + 1
    p = np.maximum(levels[num_in - 1] / q - cost, 0.0) / 2
    weights: Floats = p / p.sum()
    return weights
