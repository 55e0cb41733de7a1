"""The convergence bound of SFedPO: the effect of budget, weights and step size."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.heterogeneity import retention
from thalweg.theory.inputs import (
    at_least_zero,
    count,
    distribution,
    fractions,
    nonnegative,
    one_of,
    positive,
    shares,
    vector,
)

BoundVariant = Literal["corrected", "printed"]


class SfedpoBound(NamedTuple):
    """A bound on the smallest squared gradient norm, and its violated preconditions."""

    value: float
    violations: tuple[str, ...]  # violated preconditions; with any, the value proves nothing


def b_term(
    weights: npt.ArrayLike, availability: npt.ArrayLike, scores: npt.ArrayLike, noise: float
) -> float:
    r"""The part of the error bound that the sampling ratios and the weights change.

    .. math::
        B = \frac{\nu \sum_n p_n^2 q_n + \frac53 \sum_n p_n q_n s_n}{\sum_n p_n q_n}

    Symbols, SFedPO (15) -> here
        p, q, s                     -> weights (divided by their sum), availability, scores
        :math:`\nu = L\eta\sigma^2` -> noise; the scores include it as well

    >>> round(b_term([0.5, 0.5], [0.2, 0.2], [3.0, 6.0], noise=0.0), 6)  # 5/3 * 4.5
    7.5
    """
    p, q = _weights(weights, availability)
    s = vector(scores, "scores", p.size)
    nu = at_least_zero(noise, "noise")
    joint = p * q  # (N,)
    return float(nu * (joint @ p) + 5 / 3 * (joint @ s)) / float(joint.sum())


def sfedpo_bound(
    weights: npt.ArrayLike,
    availability: npt.ArrayLike,
    scores: npt.ArrayLike,
    budgets: npt.ArrayLike,
    ticks: int,
    *,
    rounds: int,
    initial_loss: float,
    smoothness: float,
    client_lr: float,
    grad_noise: float,
    grad_bound: float = 1.0,
    cohort_size: int | None = None,
    variant: BoundVariant = "corrected",
) -> SfedpoBound:
    r"""Theorem 1: how small the squared gradient gets within R rounds of fixed weights.

    .. math::
        \frac{18}{\sum_n p_n q_n} \bigg[ \frac{F_1}{T\eta R} + \nu \sum_n p_n^2 q_n
            + \frac53 \sum_n p_n q_n (\nu + s_n)
            + \frac1R \sum_n \frac{7 G \gamma_n p_n}{1 - (1-\alpha_n)^{2T}} \bigg],
        \qquad \nu = L\eta\sigma^2

    Two preconditions are checked and reported, not enforced: :math:`LT\eta \le \sqrt{1/5}`, and
    :math:`LT\eta\, K \max_n p_n \le 1/2` for cohorts of K clients.

    Symbols, SFedPO (6) -> here
        p, q, :math:`\alpha_n`      -> weights (divided by their sum), availability, budgets
        s                           -> scores **without** noise: `heterogeneity_score(..., noise=0)`
        T, R, :math:`F_1`           -> ticks, rounds, initial_loss
        L, :math:`\eta`             -> smoothness, client_lr
        :math:`\sigma^2`, G         -> grad_noise (a variance), grad_bound
        K                           -> cohort_size; by default all N, which holds for every round

    Differs from the paper: its last sum carries :math:`q_n` where the proof gives :math:`p_n`,
    because it takes the weight for the probability of taking part; ``variant="printed"`` computes
    what it prints. It requires :math:`LT\eta \le 1/(2M)` with M states, where its proof needs the
    second precondition above.

    >>> bound = sfedpo_bound([1.0], [1.0], [0.3], 1.0, ticks=1, rounds=10, initial_loss=1.0,
    ...                      smoothness=1.0, client_lr=0.1, grad_noise=0.0)
    >>> round(bound.value, 6), bound.violations  # 18 (1 / (0.1 * 10) + 5/3 * 0.3)
    (27.0, ())
    """
    p, q = _weights(weights, availability)
    s = nonnegative(scores, "scores", p.size)
    alpha = shares(budgets, "budgets", p.size)
    T, R = count(ticks, "ticks"), count(rounds, "rounds")
    F1 = at_least_zero(initial_loss, "initial_loss")
    L, eta = positive(smoothness, "smoothness"), positive(client_lr, "client_lr")
    nu = L * eta * at_least_zero(grad_noise, "grad_noise")
    G = positive(grad_bound, "grad_bound")
    K = p.size if cohort_size is None else count(cohort_size, "cohort_size")
    one_of(variant, ("corrected", "printed"), "variant of the bound")

    joint = p * q  # (N,)
    start = F1 / (T * eta * R)
    middle = float(nu * (joint @ p) + 5 / 3 * (joint @ (nu + s)))
    carried = p if variant == "corrected" else q
    tail = 7 * G / R * float(_initial_memory_factor(alpha, T) @ carried)
    value = 18 / float(joint.sum()) * (start + middle + tail)
    return SfedpoBound(value, _violations(L * T * eta, K * float(p.max())))


def _initial_memory_factor(budgets: Floats, ticks: int) -> Floats:
    """(N,) influence of the memory contents before the first round."""

    def compute_fading(alpha: float) -> float:
        if alpha == 1:
            return 0.0
        # 1 - (1 - alpha)^(2T) without cancellation for small budgets
        return retention(alpha, ticks) / -math.expm1(2 * ticks * math.log1p(-alpha))

    return np.array([compute_fading(float(alpha)) for alpha in budgets])


def _violations(reach: float, crowd: float) -> tuple[str, ...]:
    limit = math.sqrt(1 / 5)
    violations = []
    if reach > limit:
        violations.append(
            f"smoothness * ticks * client_lr must be at most {limit:.4g}, is {reach:.4g}"
        )
    if reach * crowd > 0.5:
        violations.append(
            "smoothness * ticks * client_lr * cohort_size * largest weight must be at most 0.5, "
            f"is {reach * crowd:.4g}"
        )
    return tuple(violations)


def _weights(weights: npt.ArrayLike, availability: npt.ArrayLike) -> tuple[Floats, Floats]:
    p = distribution(weights, "weights")
    q = fractions(availability, "availability", p.size)
    if not (p * q).any():
        raise ConfigError(
            "at least one client with a positive weight must have a positive availability."
        )
    return p, q
