"""The point of a convex hull nearest to the origin, as a convex combination of corners."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from thalweg.core.errors import ThalwegError
from thalweg.core.types import Floats
from thalweg.theory.inputs import Bools

MIN_RIDGE = (
    1e-9  # for smaller ridges, the active corners cannot be distinguished from rounding errors
)
INNER_TOLERANCE = 1e-12  # suboptimality of the interior point before polishing
POLISH_TOLERANCE = (
    1e-11  # maximum suboptimality of a polished point that replaces the interior point
)
RESULT_TOLERANCE = 1e-9  # results with a larger suboptimality are rejected
ZERO_SHARE = 1e-9  # relative to an equal share: smaller shares count as zero
MAX_STEPS = 60  # interior-point steps; 5 to 30 are usual
MAX_POLISH_STEPS = 10  # 1 or 2 are usual
STEP_FRACTION = 0.995  # share of the distance to the nearest bound that a step may take


def nearest_mixture(corners: Floats, ridge: float) -> Floats:
    r"""Probabilities a (n,) of the corners, the columns of D (C, n), that minimise

    .. math:: \tfrac12 \|D a\|^2 + \tfrac{\mu}{2} \|a\|^2,
        \qquad \mu \ge 0 \text{ the ridge}

    An interior-point method approaches the solution; a step costs :math:`n C^2` operations, and the
    number of steps hardly depends on n. The solution is then computed accurately from the set of
    active corners. Without a ridge there may be many solutions; a very small ridge selects the one
    of least norm.

    The result is verified: the slopes towards all corners bound its suboptimality.
    """
    scale = max(1.0, ridge)
    D = corners / math.sqrt(scale)
    mu = max(ridge / scale, MIN_RIDGE)
    if len(D) > D.shape[1]:
        D = _qr_factor(D)  # (n, n), with the same inner products
    a = _polish(D, mu, _inner_point(D, mu))
    excess = _excess(D, ridge / scale, a)
    if not excess <= RESULT_TOLERANCE:
        raise ThalwegError(
            f"a mixture of {a.size} corners must be optimal to {RESULT_TOLERANCE:g}, but its "
            f"suboptimality may be {excess:.2g}. Use a ridge above {ridge:g}."
        )
    return a


class _Point(NamedTuple):
    """Current point of the interior-point method, or a step."""

    a: Floats  # (n,) the mixture
    slack: Floats  # (n,) of the bounds a >= 0: slope minus level, zero where a is positive
    level: float  # slope where a is positive


def _inner_point(D: Floats, mu: float) -> _Point:
    """A mixture with positive entries and almost vanishing products a * slack."""
    n = D.shape[1]
    a = np.full(n, 1 / n)
    slope = _slope(D, mu, a)
    level = float(slope.min() - max(np.ptp(slope), 1e-3))
    here = _Point(a, slope - level, level)
    for _ in range(MAX_STEPS):
        gap = float(here.a @ here.slack)
        if gap <= INNER_TOLERANCE:
            break
        # Mehrotra's predictor-corrector method. The corrector assumes a full predictor step; if
        # that is not possible, a shorter one may be better (Colombo and Gondzio).
        move = _newton(D, mu, here)
        ahead = move(np.zeros(n))
        t = min(1.0, _max_step(here, ahead))
        reached = _step(here, ahead, t)
        centre = gap / n * (float(reached.a @ reached.slack) / gap) ** 3
        curved = move(centre - ahead.a * ahead.slack)
        turn = _step(curved, ahead, -1.0)
        moves = [_step(ahead, turn, share) for share in (t**2, (1 + t**2) / 2)] + [curved]
        room, best = max(((_max_step(here, each), each) for each in moves), key=lambda it: it[0])
        here = _step(here, best, min(1.0, STEP_FRACTION * room))
    return here


def _newton(D: Floats, mu: float, here: _Point) -> Callable[[Floats], _Point]:
    """A function that computes the step after which a * slack has given values, to first order.

    The change of a is eliminated by the diagonal w, that of the level by subtracting the w-weighted
    mean of the corners. C equations remain, for the change dy of the point Da.
    """
    a, slack, level = here
    w = 1 / (mu + slack / a)  # (n,)
    total = float(w.sum())
    mean = D @ w / total  # (C,)
    E = D - mean[:, None]
    M = np.eye(len(D)) + (E * w) @ E.T
    stray = _slope(D, mu, a) - level - slack  # zero up to rounding
    short = 1 - float(a.sum())  # zero up to rounding

    def move(products: Floats) -> _Point:
        pull = products / a - slack - stray
        dy = np.linalg.solve(M, E @ (w * pull) + short * mean)
        lift = (short - float(w @ pull)) / total
        da = w * (pull + lift - dy @ E)
        return _Point(da, (products - slack * da) / a - slack, lift + float(mean @ dy))

    return move


def _step(here: _Point, move: _Point, t: float) -> _Point:
    return _Point(here.a + t * move.a, here.slack + t * move.slack, here.level + t * move.level)


def _max_step(here: _Point, move: _Point) -> float:
    """Largest multiple of the step for which all entries and slacks remain non-negative."""
    slowest = min(float((move.a / here.a).min()), float((move.slack / here.slack).min()))
    return -1 / slowest if slowest < 0 else math.inf


def _polish(D: Floats, mu: float, inner: _Point) -> Floats:
    """The optimum, from the corners that seem active, corrected if necessary."""
    # The interior point remains if the set of active corners does not settle because of rounding.
    best = _normalise(np.where(inner.a > ZERO_SHARE / inner.a.size, inner.a, 0.0))
    least = max(_excess(D, mu, best), POLISH_TOLERANCE)
    inside = mu * inner.a > inner.slack
    inside[np.argmax(inner.a)] = True
    for _ in range(MAX_POLISH_STEPS):
        a = _optimum_without_bounds(D, mu, inside)
        mix = _normalise(np.maximum(a, 0.0))
        excess = _excess(D, mu, mix)
        if excess < least:
            best, least = mix, excess
        slope = _slope(D, mu, a)
        wanted = np.where(inside, a > 0, slope < slope[inside].mean())
        if (wanted == inside).all():
            break
        inside = wanted
    return best


def _optimum_without_bounds(D: Floats, mu: float, inside: Bools) -> Floats:
    """The optimum among all a that sum to one and are zero outside.

    Entries inside may be negative.
    """
    E = np.compress(inside, D, axis=1)  # (C, k), contiguous rows for accurate sums
    mean = E.mean(1)
    E -= mean[:, None]
    axes, width, _ = np.linalg.svd(_qr_factor(E.T).T)
    noise = 1e-14 * (width[0] + math.sqrt(E.shape[1]) * np.abs(mean).max())
    axes, width = axes[:, : len(width)][:, width > noise], width[width > noise]
    tilt = -(mean @ axes) / (width**2 + mu) @ axes.T @ E  # (k,)
    a = np.zeros(D.shape[1])
    a[inside] = 1 / tilt.size + tilt - tilt.mean()
    return a


def _qr_factor(matrix: Floats) -> Floats:
    """The R of a QR decomposition: square, with the same inner products."""
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def _slope(D: Floats, mu: float, a: Floats) -> Floats:
    slope: Floats = (D @ a) @ D + mu * a
    return slope


def _excess(D: Floats, mu: float, a: Floats) -> float:
    """Upper bound on the suboptimality, by convexity."""
    slope = _slope(D, mu, a)
    return float(a @ slope - slope.min())


def _normalise(a: Floats) -> Floats:
    normalised: Floats = a / a.sum()
    return normalised
