"""Data prototypes: the mean output of a common model for a client's samples of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats
from thalweg.theory.inputs import as_array, count, one_of

MissingRule = Literal["zero", "impute", "mask"]


def prototypes(outputs: npt.ArrayLike, labels: npt.ArrayLike, num_classes: int) -> Floats:
    r"""(R, O) mean output of a model over the samples of each class; nan: no samples.

    .. math::  P[r] = \mathrm{mean}_{i: y_i = r}\; z(x_i)

    Prototypes of clients are comparable only if one model computed all of them.

    Symbols, FedDAA (2) -> here
        :math:`z(x_i)`  -> outputs (n, O)
        :math:`y_i`     -> labels (n,)
        :math:`R`       -> num_classes

    Differences from the paper: it divides by zero for missing classes; see `fill_missing`.

    >>> prototypes([[2, 0, -1], [0, 1, 0], [1, 1, 0]], [0, 0, 2], 3)
    array([[ 1. ,  0.5, -0.5],
           [ nan,  nan,  nan],
           [ 1. ,  1. ,  0. ]])
    """
    z, classes = as_array(outputs, "outputs"), count(num_classes, "num_classes")
    y = np.asarray(labels, dtype=np.int64)
    if z.ndim != 2 or y.shape != (len(z),):
        raise ConfigError(
            f"outputs must have a row per sample and labels one entry, got shapes {z.shape} and "
            f"{y.shape}."
        )
    if not np.isfinite(z).all():
        raise ConfigError(
            "outputs must be finite; a model has diverged. Use a smaller learning rate (local.lr)."
        )
    if len(y) and not (y.min() >= 0 and y.max() < classes):
        raise ConfigError(f"labels must lie in 0 .. {classes - 1}, got {y.min()} to {y.max()}.")
    sums = np.zeros((classes, z.shape[1]))
    np.add.at(sums, y, z)
    numbers = np.bincount(y, minlength=classes)[:, None]
    means = np.full_like(sums, np.nan)
    np.divide(sums, numbers, out=means, where=numbers > 0)
    return means


def pooled_variance(groups: Sequence[tuple[npt.ArrayLike, npt.ArrayLike, Floats]]) -> float:
    r"""Variance of the outputs of a class around their mean, of all classes together.

    .. math::  s^2 = \frac{\sum_i \lVert z(x_i) - P[y_i] \rVert^2}{n - |R|}

    Each group has outputs (n, O), labels (n,) and the prototypes (R, O) of these samples; the
    classes of all groups are counted in |R|. nan if no class has two samples. The standard error of
    the prototype of m samples is :math:`s / \sqrt m`.

    The squared distances from the means 0 and 4 are 1, 1 and 0, so that s^2 = 2 / (3 - 2):

    >>> z, y = np.array([[-1.0], [1.0], [4.0]]), np.array([0, 0, 2])
    >>> pooled_variance([(z, y, prototypes(z, y, 3))])
    2.0
    """
    squares, freedom = 0.0, 0
    for outputs, labels, points in groups:
        z, y = as_array(outputs, "outputs"), np.asarray(labels, dtype=np.int64)
        squares += float(((z - points[y]) ** 2).sum())
        freedom += len(y) - int(np.count_nonzero(np.bincount(y)))
    return squares / freedom if freedom > 0 else float("nan")


def fill_missing(
    points: npt.ArrayLike, how: MissingRule, reference: npt.ArrayLike | None = None
) -> Floats:
    """(K, R, O) prototypes with one of three treatments of missing classes.

    - ``"zero"``: a row of zeros, as in the released code. If clients lack many classes, distances
      mainly depend on which classes they lack.
    - ``"impute"``: the mean of that row over the clients that have it; zeros if none has it.
    - ``"mask"``: nan. Distances are then over the rows that both have; see `row_distances`.

    The means are those of `reference` (K', R, O), or of the points themselves. Old and new
    prototypes use one reference, so that a class that appears or disappears does not look like a
    drift.

    >>> two = [[[1.0], [np.nan], [np.nan]], [[3.0], [4.0], [np.nan]]]
    >>> fill_missing(two, "impute")[0].ravel().tolist()
    [1.0, 4.0, 0.0]
    """
    one_of(how, get_args(MissingRule), "missing")
    values = _stack(points, "points")
    if how == "mask":
        return values.copy()
    row = np.zeros(values.shape[1:])
    if how == "impute":
        row = class_means(values if reference is None else reference)
        if row.shape != values.shape[1:]:
            raise ConfigError(
                f"reference must have rows of shape {values.shape[1:]} like the points, got "
                f"{row.shape}."
            )
    return np.where(np.isnan(values), row, values)


def class_means(points: npt.ArrayLike) -> Floats:
    """(R, O) mean row of each class over the clients that have it; zeros if none has it."""
    values = _stack(points, "points")
    has = ~np.isnan(values)
    means: Floats = np.where(has, values, 0.0).sum(axis=0) / np.maximum(has.sum(axis=0), 1)
    return means


def row_distances(points: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
    r"""(K, C) Euclidean distances between points (K, R, O) and others (C, R, O), over common rows.

    .. math::  d(P, Q) = \sqrt{\tfrac{1}{|J|} \sum_{r \in J} \lVert P[r] - Q[r] \rVert^2},
               \qquad J = \text{rows without nan in either}

    If no row is missing anywhere, the plain distance without the division. Two points without
    common rows get the mean of the other distances.

    >>> row_distances([[[0.0], [np.nan]], [[0.0], [5.0]]], [[[3.0], [5.0]]]).round(6).tolist()
    [[3.0], [2.12132]]
    """
    a, b = _stack(points, "points"), _stack(others, "others")
    if a.shape[1:] != b.shape[1:]:
        raise ConfigError(
            f"points and others must have the same shape, got {a.shape[1:]} and {b.shape[1:]}."
        )
    missing = bool(np.isnan(a).any() or np.isnan(b).any())
    distances = np.empty((len(a), len(b)))
    for j, other in enumerate(b):  # one at a time to limit memory
        square = ((a - other) ** 2).sum(axis=2)  # (K, R), nan where a row is missing
        has = ~np.isnan(square)
        common = has.sum(axis=1)
        total = np.where(has, square, 0.0).sum(axis=1)
        if missing:
            total = np.where(common > 0, total / np.maximum(common, 1), np.nan)
        distances[:, j] = np.sqrt(total)
    known = distances[~np.isnan(distances)]
    return np.where(np.isnan(distances), known.mean() if len(known) else 0.0, distances)


def _stack(points: npt.ArrayLike, name: str) -> Floats:
    """(K, R, O); points of one row of numbers (K, R) have outputs of one number."""
    values = as_array(points, name)
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3 or np.isinf(values).any():
        raise ConfigError(
            f"{name} must be finite prototypes, (clients, classes, outputs), got shape "
            f"{values.shape}."
        )
    return values
