"""The heterogeneity score of a client and its parts."""

from __future__ import annotations

import math

import numpy.typing as npt

from thalweg.theory.inputs import (
    at_least_zero,
    count,
    distribution,
    fractions,
    nonnegative,
    positive,
    share,
)
from thalweg.theory.mixture import kernel_mismatch, long_run_mixture, mismatch


def retention(budget: float, ticks: int) -> float:
    r"""Share of the initial memory contents that is still stored, averaged over the round.

    .. math::
        \gamma = \frac1T \sum_{t=1}^{T} (1-\alpha)^t = \frac{(1-\alpha)\,(1-(1-\alpha)^T)}{\alpha T}

    Symbols, SFedPO (7) -> here
        :math:`\alpha`, T  -> budget, ticks

    Differs from the paper: one of its formulas, (79), has no 1/T. The mean over T then exceeds 1
    for small budgets, and the bound loses its meaning.

    >>> retention(budget=0.5, ticks=1), retention(budget=0.5, ticks=2), retention(budget=1, ticks=5)
    (0.5, 0.375, 0.0)
    """
    alpha, T = share(budget, "budget"), count(ticks, "ticks")
    if alpha == 1:
        return 0.0
    return (1 - alpha) * -math.expm1(T * math.log1p(-alpha)) / (alpha * T)


def weighted_heterogeneity(
    probs: npt.ArrayLike, ratios: npt.ArrayLike, heterogeneity: npt.ArrayLike
) -> float:
    r"""Heterogeneity of the states that enter the memory.

    .. math::  \beta = \sum_m \pi_m \alpha_m d_m

    Symbols, SFedPO (7) -> here
        :math:`\pi`, :math:`\alpha_m`, d  -> probs, ratios, heterogeneity

    >>> weighted_heterogeneity([0.5, 0.5], [0.5, 0.5], [1.0, 3.0])
    1.0
    """
    pi = distribution(probs, "probs")
    alpha = fractions(ratios, "ratios", pi.size)
    d = nonnegative(heterogeneity, "heterogeneity", pi.size)
    return float((pi * alpha) @ d)


def mixture_variance(probs: npt.ArrayLike, ratios: npt.ArrayLike, budget: float) -> float:
    r"""Variance of the mixture in memory from tick to tick.

    .. math::  \beta' = 2 \sum_m \pi_m \alpha_m^2 - \sum_m \pi_m^2 \alpha_m^2 + \alpha^2

    Symbols, SFedPO (8) -> here
        :math:`\pi`, :math:`\alpha_m`, :math:`\alpha`  -> probs, ratios, budget

    >>> mixture_variance([0.5, 0.5], [0.5, 0.5], budget=0.5)  # 0.5 - 0.125 + 0.25
    0.625
    """
    pi = distribution(probs, "probs")
    alpha = fractions(ratios, "ratios", pi.size)
    return float((pi * (2 - pi)) @ (alpha * alpha)) + share(budget, "budget") ** 2


def heterogeneity_score(
    probs: npt.ArrayLike,
    ratios: npt.ArrayLike,
    importance: npt.ArrayLike,
    heterogeneity: npt.ArrayLike,
    budget: float,
    ticks: int,
    grad_bound: float = 1.0,
    noise: float = 0.0,
    gram: npt.ArrayLike | None = None,
) -> float:
    r"""Contribution of a client to the error bound; lower is better.

    .. math::
        s = L\eta\sigma^2 + \frac{\beta}{\alpha}(1-\gamma) + \frac{2G\gamma\,\beta'}{1-(1-\alpha)^2}
          + 2G\gamma \sum_m \Big(\frac{\pi_m \alpha_m}{\alpha} - w_m\Big)^2

    The terms are gradient noise, heterogeneity of the stored states, variance of the mixture in
    memory, and its distance from the goal. The last sum is `mismatch`; with the Gram matrix (M, M)
    of the states' embeddings it is `kernel_mismatch`.

    Symbols, SFedPO (12) -> here
        :math:`\pi`, :math:`\alpha_m`, w, d  -> probs, ratios, importance, heterogeneity
        :math:`\alpha`, T, G                 -> budget, ticks, grad_bound
        :math:`L\eta\sigma^2`                -> noise, the same for all clients
        :math:`\beta, \beta', \gamma`        -> weighted_heterogeneity, mixture_variance, retention

    Differences from the paper: :math:`\alpha` is always the configured budget, also when the ratios
    were computed for other `probs`; G has a default, which the paper does not give.

    >>> score = heterogeneity_score([0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [1.0, 3.0], 0.5, ticks=1)
    >>> round(score, 6)  # 2 * 0.5 + 2 * 0.5 * 0.625 / 0.75 + 0
    1.833333
    """
    alpha, G = share(budget, "budget"), positive(grad_bound, "grad_bound")
    gamma = retention(alpha, ticks)
    kept = weighted_heterogeneity(probs, ratios, heterogeneity) / alpha * (1 - gamma)
    jumps = mixture_variance(probs, ratios, alpha) / (alpha * (2 - alpha))  # 1 - (1 - alpha)^2
    if gram is None:
        away = mismatch(probs, ratios, importance, alpha)
    else:
        away = kernel_mismatch(long_run_mixture(probs, ratios, alpha), importance, gram)
    return at_least_zero(noise, "noise") + kept + 2 * G * gamma * (jumps + away)
