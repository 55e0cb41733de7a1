"""The quadratic program that DDS approximates, and its exact solution."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats
from thalweg.theory.heterogeneity import heterogeneity_score, retention
from thalweg.theory.inputs import count, distribution, nonnegative, positive, share


def dds_objective(
    probs: npt.ArrayLike,
    ratios: npt.ArrayLike,
    importance: npt.ArrayLike,
    heterogeneity: npt.ArrayLike,
    budget: float,
    ticks: int,
    grad_bound: float = 1.0,
) -> float:
    r"""Objective of DDS: the part of one client's score that depends on the ratios.

    .. math::
        Q = \frac{\beta}{\alpha}(1-\gamma) + \frac{2G\gamma\,\beta'}{1-(1-\alpha)^2}
          + 2G\gamma \sum_m \Big(\frac{\pi_m \alpha_m}{\alpha} - w_m\Big)^2

    This is SFedPO (82), and the same number as `heterogeneity_score` without noise; see there for
    the symbols.

    >>> round(dds_objective([0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [1.0, 3.0], 0.5, ticks=1), 6)
    1.833333
    """
    return heterogeneity_score(
        probs, ratios, importance, heterogeneity, budget, ticks, grad_bound=grad_bound
    )


def dds_ratios_exact(
    probs: npt.ArrayLike,
    importance: npt.ArrayLike,
    heterogeneity: npt.ArrayLike,
    budget: float,
    ticks: int,
    grad_bound: float = 1.0,
) -> Floats:
    r"""Ratios in [0, 1] that minimise `dds_objective` within the budget.

    A convex quadratic program with one equality, solved by its optimality (KKT) conditions:

    .. math::
        \alpha_m = \mathrm{clip}\!\left(
            \frac{\lambda\alpha + 4G\gamma w_m - (1-\gamma) d_m}
                 {4G\gamma \cdot \frac{2}{2-\alpha} \big(1 + \frac{1-\alpha}{\alpha}\pi_m\big)},
            \ 0,\ 1\right),
        \qquad \lambda \text{ such that } \sum_m \pi_m \alpha_m = \alpha

    Every ratio is flat, rising, then flat as :math:`\lambda` grows, so the budget spent is
    piecewise linear with two kinks per state: bisection over the kinks and one interpolation find
    it exactly.

    The objective does not depend on states that are impossible (probability 0). They get what the
    formula gives with :math:`\pi_m = 0`, which is the limit of a state that becomes ever rarer.
    With a budget of 1 there is nothing to choose, and every state gets 1.

    Symbols, SFedPO (82)-(86) -> here
        :math:`\pi`, w, d       -> probs, importance, heterogeneity
        :math:`\alpha`, T, G    -> budget, ticks, grad_bound
        :math:`\gamma`          -> retention(budget, ticks)

    Differs from the paper: it drops the bounds 0 and 1 to reach its closed form. Where no bound is
    active the two agree, for slope = (1-γ)/(4Gγ) and offset = λα/(4Gγ) in `dds_ratios`.

    >>> dds_ratios_exact([0.5, 0.5], [0.5, 0.5], [0.0, 9.0], budget=0.5, ticks=5).tolist()
    [1.0, 0.0]
    """
    pi = distribution(probs, "probs")
    w = distribution(importance, "importance", pi.size)
    d = nonnegative(heterogeneity, "heterogeneity", pi.size)
    alpha, T = share(budget, "budget"), count(ticks, "ticks")
    G = positive(grad_bound, "grad_bound")
    if alpha == 1:
        return np.ones(pi.size)

    # The formula multiplied by alpha (2 - alpha) / 2, so that nothing is divided by a small
    # budget: ratio = clip(x - start, 0, rise) / rise, with x in place of lambda.
    gamma = retention(alpha, T)
    start = alpha * (1 - alpha / 2) * ((1 - gamma) * d - 4 * G * gamma * w)  # (M,)
    start -= start.min()  # only differences matter; they are more accurate near zero
    rise = 4 * G * gamma * (alpha + (1 - alpha) * pi)  # (M,)

    def ratios_at(x: float) -> Floats:
        ratios: Floats = np.clip(x - start, 0.0, rise) / rise
        return ratios

    # Beyond the last kink all ratios are 1, even if a rise is lost in rounding.
    beyond = 2 * (start.max() + rise.max())
    kinks = np.sort(np.concatenate([start, start + rise, [beyond]]))  # (2M + 1,)
    below, above = 0, kinks.size - 1  # spent at `below` <= alpha <= spent at `above`
    while above - below > 1:
        middle = (below + above) // 2
        if pi @ ratios_at(kinks[middle]) < alpha:
            below = middle
        else:
            above = middle
    low, high = ratios_at(kinks[below]), ratios_at(kinks[above])
    spent_low, spent_high = float(pi @ low), float(pi @ high)
    mixed: Floats = low + (alpha - spent_low) / (spent_high - spent_low) * (high - low)
    return np.clip(mixed, 0.0, 1.0)
