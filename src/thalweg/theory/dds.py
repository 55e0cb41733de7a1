"""Distribution-guided data sampling (DDS): share of a memory to renew in each latent state."""

from __future__ import annotations

import itertools
import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats
from thalweg.theory.inputs import distribution, nonnegative, number, one_of, share, vector

ZeroProbRule = Literal["extend", "zero", "budget"]


def dds_scores(
    probs: npt.ArrayLike,
    importance: npt.ArrayLike,
    heterogeneity: npt.ArrayLike,
    budget: float,
    slope: float,
    offset: float,
) -> Floats:
    r"""Score of each state: higher for important, balanced and rare states.

    .. math::  \mathrm{score}_m = \frac{w_m - a_1 d_m + b_1}{1 + \frac{1-\alpha}{\alpha}\,\pi_m}

    Symbols, SFedPO (10) -> here
        :math:`\pi`, w, d      -> probs, importance (both divided by their sum), heterogeneity
        :math:`\alpha`         -> budget, of one client
        :math:`a_1, b_1`       -> slope, offset

    Differs from the paper: it prints the factor as (1-α)/α in its derivation and as α/(1-α)
    in its practical form. Only the first agrees with the quadratic program it comes from (see
    `dds_ratios_exact`); at α = 1/2, where the paper's experiments are, they are the same.

    >>> dds_scores([0.5, 0.5], [0.5, 0.5], [0.0, 1.0], budget=0.5, slope=0.25, offset=0.25).tolist()
    [0.5, 0.333...]
    """
    pi, w, d = _states(probs, importance, heterogeneity)
    a1, b1 = number(slope, "slope"), number(offset, "offset")
    return _scores(pi, w, d, share(budget, "budget"), a1, b1)


def dds_ratios(
    probs: npt.ArrayLike,
    importance: npt.ArrayLike,
    heterogeneity: npt.ArrayLike,
    budget: float,
    slope: float,
    offset: float,
    zero_prob_rule: ZeroProbRule = "extend",
) -> Floats:
    r"""Share of the memory to renew in each state, so that the average renewal equals the budget.

    .. math::
        \alpha_m = \min(c \cdot \max(\mathrm{score}_m, 0),\ 1),
        \qquad c \text{ such that } \sum_m \pi_m \alpha_m = \alpha

    Ratios are proportional to the scores; one that would exceed 1 is held there and what it leaves
    of the budget goes to the others. If nothing with a positive score is left to take it, the rest
    is spread evenly: a state with a negative score can end with a positive ratio.

    States predicted to be impossible (probability 0) cost no budget. `zero_prob_rule` is the value
    that they get if one of them occurs nevertheless: ``extend`` is the formula above with the
    same c (or the even share), ``zero`` nothing, ``budget`` the budget.

    Symbols, SFedPO (11) and Algorithm 2 -> here
        :math:`\pi`, w, d                       -> probs, importance, heterogeneity
        :math:`\alpha` per client, per state    -> budget, the result
        :math:`a_1, b_1`                        -> slope, offset, see `dds_scores`

    Differs from the paper: states are settled from the highest score down in one sweep, where
    Algorithm 2 starts over after each, which gives the same ratios because c never falls;
    impossible states, and scores that are all negative, are defined.

    >>> dds_ratios([0.5, 0.5], [0.5, 0.5], [0, 1], budget=0.5, slope=0.25, offset=0.25).round(6)
    array([0.6, 0.4])
    """
    pi, w, d = _states(probs, importance, heterogeneity)
    a1, b1 = number(slope, "slope"), number(offset, "offset")
    alpha = share(budget, "budget")
    one_of(zero_prob_rule, ("extend", "zero", "budget"), "zero_prob_rule")
    gain = np.maximum(_scores(pi, w, d, alpha, a1, b1), 0.0)  # (M,)

    ratios, unseen = _spend(pi, gain, alpha)
    if zero_prob_rule == "zero":
        unseen = np.zeros(pi.size)
    elif zero_prob_rule == "budget":
        unseen = np.full(pi.size, alpha)
    return np.where(pi > 0, ratios, unseen)


def _spend(pi: Floats, gain: Floats, alpha: float) -> tuple[Floats, Floats]:
    """Algorithm 2 from the highest gain down: (M,) ratios, and (M,) ratios of impossible states.

    Fixing a state at ratio 1 and raising all states below it in proportion has a cost. The state is
    fixed while the budget covers this cost; the first state that is not fixed determines the
    proportion.
    """
    order = np.flatnonzero(pi)
    order = order[np.argsort(-gain[order], kind="stable")]
    p, g = pi[order].tolist(), gain[order].tolist()  # Python floats are faster one by one
    mass = list(itertools.accumulate(reversed(p), initial=0.0))[
        ::-1
    ]  # of a state and all states below it
    num_positive = len(g) - g.count(0.0)
    cost = [0.0] * num_positive
    lower_cost = lower_gain = 0.0
    for m in reversed(range(num_positive)):
        # Relative to the gain of the state itself, to avoid underflow.
        cost[m] = lower_cost = p[m] + lower_cost * (lower_gain / g[m])
        lower_gain = g[m]

    num_full, left = 0, alpha
    while num_full < num_positive and left >= cost[num_full]:
        num_full += 1
        # Two equivalent formulas; the one with smaller terms is more accurate. With a budget of 1
        # the second is exact, and every reachable state ends at 1.
        left = left - p[num_full - 1] if alpha <= 0.5 else mass[num_full] - (1 - alpha)
        left = max(left, 0.0)

    ratios, rest = np.ones(pi.size), order[num_full:]
    if num_full < num_positive:
        ratios[rest] = gain[rest] / g[num_full] * left / cost[num_full]
        level = g[num_full] * (cost[num_full] / left) if left > 0 else math.inf
    elif rest.size:  # no state with a positive gain is left: spread the rest evenly
        even = min(left / mass[num_full], 1.0)
        ratios[rest] = even
        return ratios, np.full(pi.size, even)
    else:  # a budget of 1
        level = g[-1]
    return ratios, np.minimum(gain, level) / level  # `level` is the gain that earns a ratio of 1


def _states(
    probs: npt.ArrayLike, importance: npt.ArrayLike, heterogeneity: npt.ArrayLike
) -> tuple[Floats, Floats, Floats]:
    pi = distribution(probs, "probs")
    w = distribution(importance, "importance", pi.size)
    return pi, w, nonnegative(heterogeneity, "heterogeneity", pi.size)


def _scores(pi: Floats, w: Floats, d: Floats, alpha: float, a1: float, b1: float) -> Floats:
    # (10) with numerator and denominator multiplied by alpha, to avoid overflow for small
    # budgets.
    with np.errstate(over="ignore", invalid="ignore"):
        scores: Floats = (w - a1 * d + b1) * (alpha / (alpha + (1 - alpha) * pi))
    return vector(scores, "the scores that slope and offset lead to")
