"""Estimates of state probabilities: from counts, or the truth with noise."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import as_array, distribution, vector


class Posterior(NamedTuple):
    """Mean and variance of the estimated state probabilities."""

    mean: Floats  # (..., M) sums to 1
    variance: Floats  # (..., M)


def posterior(prior: npt.ArrayLike, counts: npt.ArrayLike) -> Posterior:
    r"""State probabilities after some visits: a Dirichlet posterior.

    .. math::
        \hat\pi_m = \frac{a_m}{A}, \qquad
        \mathrm{Var}_m = \frac{a_m (A - a_m)}{A^2 (A + 1)}, \qquad
        a_m = \mathrm{prior}_m + \mathrm{count}_m, \quad A = \sum_m a_m

    The last axis runs over the states; clients may be stacked before it.

    >>> mean, variance = posterior(prior=[1, 1], counts=[2, 0])
    >>> mean.tolist(), variance.tolist()  # 3/4 * 1/4 / 5
    ([0.75, 0.25], [0.0375, 0.0375])
    """
    before, seen = as_array(prior, "prior"), as_array(counts, "counts")
    if before.shape != seen.shape or before.ndim == 0 or before.size == 0:
        raise ConfigError(
            "prior and counts must have one entry per state each, "
            f"got shapes {before.shape} and {seen.shape}."
        )
    _check_finite(before.min() > 0, before, "prior must be positive and finite")
    _check_finite(seen.min() >= 0, seen, "counts must be non-negative and finite")
    a = before + seen  # (..., M)
    total = a.sum(axis=-1, keepdims=True)  # (..., 1)
    mean = a / total
    return Posterior(mean, mean * (1 - mean) / (total + 1))


def nested_posteriors(prior: npt.ArrayLike, counts: npt.ArrayLike) -> Posterior:
    r"""Posteriors of several discounts of the past, each with the one before as its prior.

    Row k of the counts has been multiplied by the discount :math:`\lambda_k` at each visit. The
    first row has the given prior; each other row gets one pseudo-visit, which is divided among the
    states as the row before predicts:

    .. math::
        \hat\pi_{1,m} = \frac{\mathrm{prior}_m + c_{1,m}}{\sum_j \mathrm{prior}_j + c_{1,j}}, \qquad
        \hat\pi_{k,m} = \frac{\hat\pi_{k-1,m} + c_{k,m}}{1 + \sum_j c_{k,j}}

    Rows are ordered from the longest memory to the shortest. A short memory thus predicts states
    that it has not seen recently as the longer ones do. The variances are those of `posterior`.

    Two states: eight visits of the first, then one of the second, as a memory of one tick has it:

    >>> mean, _ = nested_posteriors([1, 1], [[8, 1], [0, 1]])
    >>> mean.round(3).tolist()  # 9/11 and 2/11; then (9/11 + 0) / 2 and (2/11 + 1) / 2
    [[0.818, 0.182], [0.409, 0.591]]
    """
    stacked = as_array(counts, "counts")
    if stacked.ndim != 2 or len(stacked) == 0:
        raise ConfigError(
            f"counts must have one row per discount and a column per state, got {stacked.shape}."
        )
    means, variances = [], []
    base = as_array(prior, "prior")
    for row in stacked:
        found = posterior(base, row)
        means.append(found.mean)
        variances.append(found.variance)
        base = found.mean
    return Posterior(np.stack(means), np.stack(variances))


def mix_posteriors(posteriors: Posterior, weights: npt.ArrayLike) -> Posterior:
    r"""Mean and variance of a mixture of posteriors (K, M).

    .. math::
        \hat\pi_m = \sum_k \omega_k \hat\pi_{k,m}, \qquad
        \mathrm{Var}_m = \sum_k \omega_k (\mathrm{Var}_{k,m} + \hat\pi_{k,m}^2) - \hat\pi_m^2

    Weights that are proportional to the probability that each posterior gave to the past make the
    mixture almost as good as the best: its log loss is at most log K above, after any number of
    visits.

    >>> certain = Posterior(np.array([[1.0, 0.0], [0.0, 1.0]]), np.zeros((2, 2)))
    >>> mix_posteriors(certain, [0.5, 0.5]).variance.tolist()  # 1/2 - 1/4
    [0.25, 0.25]
    """
    omega = distribution(weights, "weights", len(posteriors.mean))
    mean: Floats = omega @ posteriors.mean
    variance = omega @ (posteriors.variance + posteriors.mean**2) - mean**2
    return Posterior(mean, np.maximum(variance, 0.0))


def perturb(probs: npt.ArrayLike, noise: npt.ArrayLike) -> Floats:
    r"""A forecast with an error: add `noise`, clip at zero, normalise.

    .. math::
        \hat\pi = \max(\pi + \varepsilon, 0) \big/ \textstyle\sum_m \max(\pi_m + \varepsilon_m, 0)

    If nothing is left after clipping, the forecast is the truth.

    >>> perturb([0.5, 0.5], [0.25, -0.25]).tolist()
    [0.75, 0.25]
    """
    truth = distribution(probs, "probs")
    disturbed = np.maximum(truth + vector(noise, "noise", truth.size), 0.0)
    if not disturbed.any():
        return truth
    return distribution(disturbed, "the disturbed probs")


def _check_finite(bounded_below: np.bool_, array: Floats, expected: str) -> None:
    if not (bounded_below and float(array.max()) * array.shape[-1] < math.inf):
        raise ConfigError(f"{expected}, got values from {array.min()} to {array.max()}.")
