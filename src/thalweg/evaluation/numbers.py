"""Scores of predicted numbers: regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints

Numbers = npt.NDArray[Any]  # (n,) or (n, D)


def compute_abs_errors(predicted: Numbers, targets: Numbers) -> Floats:
    """(n,) absolute errors of numbers (n,) or (n, D), averaged over D.

    >>> compute_abs_errors(np.array([1.0, 2.0]), np.array([3.0, 2.0])).tolist()
    [2.0, 0.0]
    >>> compute_abs_errors(np.array([[1.0, 2.0]]), np.array([[3.0, 2.0]])).tolist()
    [1.0]
    """
    errors = np.abs(predicted.astype(np.float64) - targets)
    means: Floats = errors.reshape(len(errors), int(np.prod(errors.shape[1:]))).mean(axis=1)
    return means


def score_numbers(predicted: Numbers, targets: Numbers) -> dict[str, float]:
    """Mean absolute error, root mean squared error and coefficient of determination.

    R2 is one minus the squared error relative to that of the mean of the targets, averaged over
    the D outputs; it is left out if a target is constant.

    >>> score_numbers(np.array([1.0, 2.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    {'mae': 1.0, 'rmse': 1.7320508075688772, 'r2': -3.5}
    >>> score_numbers(np.array([1.0]), np.array([2.0]))
    {'mae': 1.0, 'rmse': 1.0}
    """
    ours = predicted.astype(np.float64).reshape(len(predicted), -1)
    right = targets.astype(np.float64).reshape(len(targets), -1)
    squares = ((ours - right) ** 2).mean(axis=0)  # (D,)
    spread = right.var(axis=0)
    row = {
        "mae": float(np.abs(ours - right).mean()),
        "rmse": float(np.sqrt(squares.mean())),
    }
    if (spread > 0).all():
        row["r2"] = float((1 - squares / spread).mean())
    return row


def mean_by_owner(values: Floats, owner: Ints, num_clients: int) -> Floats:
    """(N,) mean of the values (n,) of each client's samples; nan if it has none.

    >>> mean_by_owner(np.array([1.0, 3.0, 5.0]), np.array([0, 0, 2]), 3).tolist()
    [2.0, nan, 5.0]
    """
    count = np.bincount(owner, minlength=num_clients)
    total = np.bincount(owner, weights=values, minlength=num_clients)
    found: Floats = np.divide(total, count, out=np.full(num_clients, np.nan), where=count > 0)
    return found
