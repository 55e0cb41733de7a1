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
