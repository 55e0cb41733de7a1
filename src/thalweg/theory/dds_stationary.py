"""The long-run distance of a memory from a goal, and the renewal ratios that minimise it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import as_array, distribution, fractions, number, share

MAX_STEPS = 500  # of the projected gradient method; it needs about twenty
MAX_HALVINGS = 50  # of a step that does not reduce the distance
TOLERANCE = 1e-12  # it stops when a step reduces the distance by at most this part ...
MAX_LAST_STEP = 1e-4  # ... and changes no ratio by more than this


def stationary_distance(
    probs: npt.ArrayLike, ratios: npt.ArrayLike, deviations: npt.ArrayLike, spread: float = 0.0
) -> float:
    r"""Expected squared distance of a memory's mixture from a goal, in the long run.

    In state m, which occurs with probability :math:`\pi_m` independently in each tick, the memory
    renews the share :math:`\alpha_m`. With :math:`x` the difference of the memory's mean signature
    (such as its class shares) and the goal, and :math:`g_m` that difference for state m, a tick is

    .. math::  x' = (1 - \alpha_m)\, x + \alpha_m\, g_m

    In the long run x and x' have the same distribution. Taking expectations of x, and of its
    squared length, gives with :math:`\bar\alpha = \sum_m \pi_m \alpha_m`

    .. math::
        E[x] = \frac{y}{\bar\alpha}, \qquad
        E\lVert x \rVert^2 = \frac{\sum_m \pi_m \alpha_m^2 \lVert g_m \rVert^2
            + \frac{2}{\bar\alpha} (y - z) \cdot y}
            {\sum_m \pi_m \alpha_m (2 - \alpha_m)}, \qquad
        y = \sum_m \pi_m \alpha_m g_m, \quad z = \sum_m \pi_m \alpha_m^2 g_m

    With a `spread` the probabilities are those of a Dirichlet posterior with mean :math:`\pi` and
    variances :math:`\rho\, \pi_m (1 - \pi_m)`. Then :math:`E[\pi_m \pi_k] = (1 - \rho) \pi_m \pi_k`
    and, for m = k, :math:`\rho \pi_m` more, so that the product is replaced by

    .. math::
        (1 - \rho) (y - z) \cdot y
            + \rho \sum_m \pi_m (1 - \alpha_m) \alpha_m^2 \lVert g_m \rVert^2

    The denominator and :math:`\bar\alpha` are linear in the probabilities; their means are used.

    Symbols, SFedPO -> here
        :math:`\pi, \alpha_m`             -> probs, ratios
        :math:`g_m`                       -> deviations, (M, E)
        :math:`\rho`                      -> spread, 1 / (1 + the number of pseudo-visits)

    Differs from the paper: it bounds the squared distance after a renewal by a constant ((65)) and
    adds the distance of the long-run mean. Here the expectation is exact, without a constant.

    Two equally likely states at 1 and -1, and half of the memory renewed: y = z = 0, so that the
    numerator is 1/4 and the denominator 3/4:

    >>> round(stationary_distance([0.5, 0.5], [0.5, 0.5], [[1.0], [-1.0]]), 6)
    0.333333
    """
    pi = distribution(probs, "probs")
    alpha = fractions(ratios, "ratios", pi.size)
    problem = _Problem(pi, _check_deviations(deviations, pi.size), _check_spread(spread))
    return problem.distance(alpha, float(pi @ alpha))


def dds_ratios_stationary(
    probs: npt.ArrayLike, deviations: npt.ArrayLike, budget: float, spread: float = 0.0
) -> Floats:
    r"""Ratios in [0, 1] that minimise `stationary_distance` within the budget.

    The budget is :math:`\sum_m \pi_m \alpha_m = \alpha`. Without it the best memory would never
    change. The minimum is found by the projected gradient method from equal ratios, so that the
    result is never worse than these; step sizes are those of Barzilai and Borwein, shortened until
    the distance decreases. Nothing is drawn at random.

    States of probability 0 cost nothing. They get the ratio of a state that becomes ever rarer:
    the minimum on [0, 1] of

    .. math::
        a^2 \big(\lVert g \rVert^2 (1 + 2 \rho / \alpha) + S - \tfrac{2 (1 - \rho)}{\alpha}
        g \cdot y\big) - a^3 \tfrac{2 \rho}{\alpha} \lVert g \rVert^2
        + a \big(\tfrac{2 (1 - \rho)}{\alpha}\, g \cdot (2 y - z) - \lambda\big)

    where S is the distance and :math:`\lambda` the price of the budget: the derivative that all
    states with ratios between 0 and 1 have in common, in the units of the numerator.

    With a spread of 0 we have found no second minimum (a test compares random starts). A large
    spread can have several; the result is then one of them.

    Symbols, SFedPO -> here
        :math:`\pi, \alpha`        -> probs, budget
        :math:`g_m`, :math:`\rho`  -> deviations (M, E), spread

    A state at 1 that occurs in three of four ticks, and a state at the goal. In the second one all
    of the memory is renewed; the first gets the rest of the budget, (1/2 - 1/4) / (3/4):

    >>> dds_ratios_stationary([0.75, 0.25], [[1.0], [0.0]], budget=0.5).round(6).tolist()
    [0.333333, 1.0]
    """
    pi = distribution(probs, "probs")
    alpha = share(budget, "budget")
    g, rho = _check_deviations(deviations, pi.size), _check_spread(spread)
    ratios = np.ones(pi.size)
    if alpha == 1:
        return ratios
    reachable = pi > 0
    problem = _Problem(pi[reachable], g[reachable], rho)
    ratios[reachable] = _minimise(problem, alpha)
    if not reachable.all():
        ratios[~reachable] = _ratios_of_rare_states(
            problem, ratios[reachable], alpha, g[~reachable]
        )
    return ratios


class _Problem:
    """The distance as a function of the ratios, for fixed probabilities."""

    def __init__(self, pi: Floats, g: Floats, rho: float) -> None:
        self.pi, self.g, self.rho = pi, g, rho
        self.squares = (g * g).sum(axis=1)  # (M,)

    def distance(self, a: Floats, alpha: float) -> float:
        if alpha == 0:
            raise ConfigError(
                "the ratios of all reachable states are 0, so that the memory never changes and "
                "has no long-run distance; expected a positive ratio of one of them."
            )
        y, z = self.sums(a)
        varied = self.pi @ ((1 - a) * a * a * self.squares)
        product = (1 - self.rho) * float((y - z) @ y) + self.rho * float(varied)
        numerator = float(self.pi @ (a * a * self.squares)) + 2 / alpha * product
        spent = self.denominator(a)
        return max(numerator, 0.0) / spent if spent > 0 else math.inf  # all ratios rounded to 0

    def slope(self, a: Floats, alpha: float, distance: float) -> Floats:
        """(M,) the derivative by each ratio, divided by the probability of its state."""
        y, z = self.sums(a)
        along, across = self.g @ y, self.g @ (y - z)
        product = (1 - self.rho) * ((1 - 2 * a) * along + across)
        product += self.rho * (2 * a - 3 * a * a) * self.squares
        numerator = 2 * a * self.squares + 2 / alpha * product
        slope: Floats = (numerator + 2 * distance * a) / self.denominator(a)
        return slope

    def sums(self, a: Floats) -> tuple[Floats, Floats]:
        share_of_state = self.pi * a
        return share_of_state @ self.g, (share_of_state * a) @ self.g

    def denominator(self, a: Floats) -> float:
        return float(self.pi @ (a * (2 - a)))


def _minimise(problem: _Problem, alpha: float) -> Floats:
    a = np.full(problem.pi.size, alpha)
    distance = problem.distance(a, alpha)
    slope = problem.slope(a, alpha, distance)
    length = math.inf
    for _ in range(MAX_STEPS):
        slope = slope - slope.mean()  # only differences matter
        largest = float(np.abs(slope).max())
        if largest <= TOLERANCE * (1 + distance):  # all states have the same price
            return a
        length = min(length, 10 / largest)  # longer steps end at the same bounds
        for _ in range(MAX_HALVINGS):
            following = _project(a - length * slope, problem.pi, alpha)
            step = following - a
            found = problem.distance(following, alpha)
            if found <= distance + 1e-4 * float(problem.pi @ (slope * step)):
                break
            length /= 2
        else:  # no decrease beyond rounding
            return a
        new_slope = problem.slope(following, alpha, found)
        bend = float(problem.pi @ (step * (new_slope - slope)))
        length = float(problem.pi @ (step * step)) / bend if bend > 0 else math.inf
        has_converged = (
            np.abs(step).max() <= MAX_LAST_STEP and distance - found <= TOLERANCE * distance
        )
        a, distance, slope = following, found, new_slope
        if has_converged:
            break
    return a


def _project(wanted: Floats, pi: Floats, alpha: float) -> Floats:
    """Return the nearest ratios in [0, 1] within the budget, states weighted by probability.

    These are ``clip(wanted - x, 0, 1)`` for one number x. The budget that they spend falls from 1
    to 0 and is piecewise linear in x, with two kinks per state; it is computed at all kinks.
    """
    kinks = np.concatenate([wanted - 1, wanted])
    order = kinks.argsort()
    kinks = kinks[order]
    falls = np.maximum(np.concatenate([pi, -pi])[order].cumsum(), 0.0)  # per x, after each kink
    spent = 1.0 - np.concatenate([[0.0], (falls[:-1] * np.diff(kinks)).cumsum()])  # at each kink
    below = int(np.searchsorted(-spent, -alpha)) - 1  # the last kink that spends more
    x = kinks[below]
    if falls[below] > 0:
        x += (spent[below] - alpha) / falls[below]
    ratios: Floats = np.clip(wanted - x, 0.0, 1.0)
    return ratios


def _ratios_of_rare_states(problem: _Problem, a: Floats, alpha: float, g: Floats) -> Floats:
    """Return (n,) ratios of further states (n, E), if each were infinitely rare.

    `a` are the best ratios of the states of the problem.
    """
    rho, squares = problem.rho, (g * g).sum(axis=1)
    distance = problem.distance(a, alpha)
    price = _price(problem.slope(a, alpha, distance), a) * problem.denominator(a)
    y, z = problem.sums(a)
    cubic = -2 * rho / alpha * squares
    square = squares * (1 + 2 * rho / alpha) + distance - 2 * (1 - rho) / alpha * (g @ y)
    linear = 2 * (1 - rho) / alpha * (g @ (2 * y - z)) - price
    # The minimum is at 0, at 1, or where the derivative is 0.
    root = np.sqrt(np.maximum(square * square - 3 * cubic * linear, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        # The zero of the derivative with a positive second derivative, without cancellation.
        inner = np.where(square + root != 0, -linear / (square + root), 0.0)
    options = np.stack([np.zeros_like(inner), np.ones_like(inner), np.clip(inner, 0.0, 1.0)])
    values = ((cubic * options + square) * options + linear) * options
    best: Floats = options[values.argmin(axis=0), np.arange(inner.size)]
    return best


def _price(slope: Floats, a: Floats) -> float:
    """Return the decrease of the distance for a larger budget, from the reachable states.

    It is the slope of states with a ratio between 0 and 1. If there are none, any number between
    the slopes of the states at 1 and those at 0 is possible; the middle is used.
    """
    is_inside = (a > 0) & (a < 1)
    if is_inside.any():
        return float(slope[is_inside].mean())
    full, empty = slope[a == 1], slope[a == 0]
    if not len(empty):
        return float(full.max())
    if not len(full):
        return float(empty.min())
    return float(full.max() + empty.min()) / 2


def _check_deviations(deviations: npt.ArrayLike, num_states: int) -> Floats:
    array = as_array(deviations, "deviations")
    if array.ndim != 2 or len(array) != num_states or not np.isfinite(array).all():
        raise ConfigError(
            f"deviations must be finite numbers, one row for each of {num_states} states, got "
            f"shape {array.shape}."
        )
    return array


def _check_spread(spread: float) -> float:
    rho = number(spread, "spread")
    if not 0 <= rho <= 1:
        raise ConfigError(f"spread must lie between 0 and 1, got {rho}.")
    return rho
