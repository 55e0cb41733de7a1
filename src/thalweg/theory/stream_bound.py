"""Parts of the error bound for learning from data streams."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.theory.inputs import (
    as_array,
    at_least_zero,
    count,
    distribution,
    nonnegative,
    positive,
)


def effective_samples(importance: npt.ArrayLike, num_samples: npt.ArrayLike | None = None) -> float:
    r"""Equivalent number of equally important samples for generalisation.

    .. math::
        N_{eff} = \Big( \sum_m \sum_i p_{m,i}^2 \Big)^{-1}
                = \Big( \sum_m p_m^2 / N_m \Big)^{-1}
                = N \Big/ \sum_m \frac{p_m^2}{n_m}

    `importance` has one entry per sample or, with `num_samples`, one entry per client, divided
    equally among its samples. The result is at most the number of samples, with equality if all are
    equally important, and zero if a client without samples has a positive importance.

    Symbols, data streams -> here
        :math:`p_{m,i}` or :math:`p_m`  -> importance (divided by its sum)
        :math:`N_m`                     -> num_samples, over the whole run

    >>> effective_samples([0.25, 0.25, 0.25, 0.25])
    4.0
    >>> round(effective_samples([0.25, 0.75, 0, 0], [10, 30, 30, 30]), 6)
    40.0
    """
    p = distribution(importance, "importance")
    if num_samples is None:
        return float(1 / (p @ p))
    N = nonnegative(num_samples, "num_samples", p.size)
    if p[N == 0].any():
        return 0.0
    there = N > 0
    return float(1 / (p[there] ** 2 / N[there]).sum())


def importance_ratio(
    diameter: float,
    grad_bound: float,
    loss_bound: float,
    num_params: int,
    num_samples: float,
    num_fresh: float,
) -> float:
    r"""The ratio for `optimal_importance`, from quantities that can be measured before training.

    .. math::
        \frac{\hat c_2}{\hat c_1} = \frac{B + \sqrt{d / N}}{G D \sqrt{M - M_{hist}}}

    Infinite without fresh clients, because there is no optimization error.

    Symbols, data streams (193) -> here
        D, G, B             -> diameter (distance by which clients move the initial model), largest
                               gradient norm, largest loss
        d, N                -> num_params, num_samples of all clients over the whole run
        :math:`M-M_{hist}`  -> num_fresh

    Differences from the paper: for CIFAR and its synthetic data the reported ratios do not follow
    from the reported constants. Use its ratios directly to repeat its tables.

    >>> round(importance_ratio(1.0, 5.5, 2.3, 3_353_034, 50_000, 25), 4)  # CIFAR-10
    0.3814
    """
    D, G = positive(diameter, "diameter"), positive(grad_bound, "grad_bound")
    B, d = at_least_zero(loss_bound, "loss_bound"), count(num_params, "num_params")
    N, fresh = positive(num_samples, "num_samples"), at_least_zero(num_fresh, "num_fresh")
    if fresh == 0:
        return math.inf
    return (B + math.sqrt(d / N)) / (G * D * math.sqrt(fresh))


def target_bias(importance: npt.ArrayLike, target: npt.ArrayLike, discrepancy: float) -> float:
    r"""Bias of training with other client weights than the objective's.

    .. math:: 2 \cdot \mathrm{disc} \cdot \|\alpha - p\|_1

    Symbols, data streams (146) -> here
        p, :math:`\alpha`   -> importance, target (both divided by their sum)
        disc                -> discrepancy, the largest difference between two clients' risks of one
                               model

    >>> round(target_bias([0.5, 0.5], [0.75, 0.25], discrepancy=2.0), 6)
    2.0
    """
    p = distribution(importance, "importance")
    alpha = distribution(target, "target", p.size)
    return 2 * at_least_zero(discrepancy, "discrepancy") * float(np.abs(alpha - p).sum())


def share_distance_bound(importance: npt.ArrayLike, shares: npt.ArrayLike) -> float:
    r"""A smooth bound on the distance between importance and shares.

    .. math:: \|p - n\|_1 \le \sqrt{\textstyle\sum_m p_m^2 / n_m - 1}

    Infinite if a client without samples has a positive importance.

    Symbols, data streams, Corollary 5.1 -> here
        p, n    -> importance, shares (both divided by their sum)

    >>> round(share_distance_bound([1, 0], [1, 3]), 6)  # the distance is 1.5
    1.732051
    """
    n = distribution(shares, "shares")
    p = distribution(importance, "importance", n.size)
    if p[n == 0].any():
        return math.inf
    there = n > 0
    gap = p[there] - n[there]
    return math.sqrt(float((gap**2 / n[there]).sum()))  # equivalent, and never negative


def gradient_variability(
    round_weights: npt.ArrayLike, full_gradients: npt.ArrayLike, mixed_gradients: npt.ArrayLike
) -> float:
    r"""Squared distance between the gradients used in training and the gradient of the objective.

    .. math:: \sum_t q^{(t)} \Big\| \nabla L_S - \sum_m p_m^{(t)} \nabla L_m^{(t)} \Big\|^2

    An estimate from gradients at the model of each round. Zero if every round uses all samples with
    their importance.

    Symbols, data streams (17) -> here
        :math:`q^{(t)}`                             -> round_weights, (T,), divided by their sum
        :math:`\nabla L_S`                          -> full_gradients, (T, P): of all samples of the
                                                       run, with their importance
        :math:`\sum_m p_m^{(t)} \nabla L_m^{(t)}`   -> mixed_gradients, (T, P): of the memories in
                                                       this round

    >>> gradient_variability([1, 3], [[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 2.0]])
    3.25
    """
    q = distribution(round_weights, "round_weights")
    full = as_array(full_gradients, "full_gradients")
    mixed = as_array(mixed_gradients, "mixed_gradients")
    if full.ndim != 2 or full.shape != mixed.shape or len(full) != q.size:
        raise ConfigError(
            f"full_gradients and mixed_gradients must have {q.size} rows each, one per round, and "
            f"the same columns, got shapes {full.shape} and {mixed.shape}."
        )
    squared = ((full - mixed) ** 2).sum(1)  # (T,)
    if not np.isfinite(squared).all():
        raise ConfigError(
            f"gradients must be finite, those of round {int(np.argmin(np.isfinite(squared)))} "
            "are not."
        )
    return float(q @ squared)
