"""Data-aware client sampling (DPCS): sampling probabilities for an expected label distribution."""

from __future__ import annotations

import reprlib
from typing import Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError, ThalwegError
from thalweg.core.types import Floats
from thalweg.theory.inputs import SUM_TOLERANCE, as_array, at_least_zero, one_of, probabilities
from thalweg.theory.nearest import nearest_mixture

Norm = Literal["l2", "l1"]

RIDGE = 1e-3  # relative to the mean squared norm of the clients' distributions


def dpcs_probabilities(
    distributions: npt.ArrayLike,
    goal: npt.ArrayLike,
    ridge: float | None = None,
    norm: Norm = "l2",
) -> Floats:
    r"""Sampling probabilities of clients, for an expected label distribution close to a goal.

    .. math::
        \min_a \ \tfrac12 \Big\| \sum_i a_i r_i - g \Big\|_2^2 + \tfrac{\mu}{2} \|a\|_2^2,
        \qquad \sum_i a_i = 1, \quad a_i \ge 0

    With many clients there are many optima without the ridge :math:`\mu`; with it the optimum is
    unique and spreads over as many clients as possible. By default it is a thousandth of the mean
    squared norm of the :math:`r_i`. ``ridge=0`` is the paper's problem; of its optima the one of
    least norm is returned, optimal to 1e-9 like all results.

    ``norm="l1"`` minimises the sum of absolute differences instead, by linear programming and
    without a ridge. Its optima are corners: at most C + 1 clients are ever drawn.

    Exact, and fast enough to be solved every round: its cost grows with :math:`n C^2`.

    Symbols, DPCS (2) -> here
        r  label mix of each client  -> distributions, (n, C): one row per client
        g  p^goal                    -> goal, (C,)
        a                            -> the result, (n,)
        :math:`\mu`                  -> ridge

    Differs from the paper: it has no ridge, and does not state which of several optima it takes.

    >>> mixes = [[1, 0, 0], [0, 1, 0], [0.2, 0.3, 0.5]]
    >>> dpcs_probabilities(mixes, [1 / 3, 1 / 3, 1 / 3], ridge=0).round(6)
    array([0.2     , 0.133333, 0.666667])
    """
    one_of(norm, ("l2", "l1"), "norm")
    R = _check_mixes(distributions)  # (n, C)
    g = probabilities(goal, "goal", R.shape[1])
    if norm == "l1":
        if ridge:
            raise ConfigError(f'a ridge needs norm="l2", got ridge={ridge} with norm="l1".')
        return _solve_linear_program(R, g)
    mu = RIDGE * float((R**2).sum()) / len(R) if ridge is None else at_least_zero(ridge, "ridge")
    return nearest_mixture(np.ascontiguousarray((R - g).T), mu)


def _check_mixes(distributions: npt.ArrayLike) -> Floats:
    R = as_array(distributions, "distributions")
    if R.ndim != 2 or R.size == 0:
        raise ConfigError(
            "distributions must be a table with a row per client and a column per class, "
            f"got shape {R.shape}."
        )
    totals = R.sum(axis=1)  # (n,)
    # Written so that nan is rejected as well.
    for wrong, expected in (
        (~(R.min(axis=1) >= 0), "be non-negative"),
        (totals == 0, "have counted something; leave clients without data out"),
        (~(np.abs(totals - 1) <= SUM_TOLERANCE), "sum to one; divide counts by their sum"),
    ):
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ConfigError(
                f"every row of distributions must {expected}. Row {first} is "
                f"{reprlib.repr(R[first].tolist())}; {int(wrong.sum())} of {len(R)} are like that."
            )
    mixes: Floats = R / totals[:, None]
    return mixes


def _solve_linear_program(R: Floats, g: Floats) -> Floats:
    """Differences are split into positive and negative parts."""
    from scipy.optimize import linprog  # slow import

    n, C = R.shape
    mixed = np.hstack([R.T, -np.eye(C), np.eye(C)])  # (C, n + 2C)
    whole = np.concatenate([np.ones(n), np.zeros(2 * C)])
    found = linprog(
        np.concatenate([np.zeros(n), np.ones(2 * C)]),
        A_eq=np.vstack([mixed, whole]),
        b_eq=np.append(g, 1.0),
        method="highs-ds",  # the simplex method returns an exact corner
    )
    if not found.success or found.x is None:
        raise ThalwegError(f"no probabilities were found: {found.message}")
    a = np.maximum(found.x[:n], 0.0)
    chances: Floats = a / a.sum()
    return chances
