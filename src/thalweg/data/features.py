"""Validation and scaling of numeric features."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Floats, Floats32, Ints

MAX_FLOAT32 = float(np.finfo(np.float32).max)


class Scale(NamedTuple):
    """Scaling of a table: column f became (x - centre[f]) / width[f].

    Samples of more than one axis are scaled as if they were flattened.
    """

    centre: tuple[float, ...]
    width: tuple[float, ...]


class FeatureSplit(NamedTuple):
    """A feature matrix split in two."""

    train: Floats32
    test: Floats32
    scale: Scale | None  # None: not scaled


def find_unusable(values: npt.NDArray[np.floating]) -> tuple[int, ...] | None:
    """Position of the first value that is not finite or does not fit in 32 bits.

    None: all are valid.

    >>> find_unusable(np.array([[1.0, 2.0], [3.0, np.nan]]))
    (1, 1)
    """
    fine = np.abs(values) <= MAX_FLOAT32  # nan compares false
    if fine.all():
        return None
    return tuple(int(i) for i in np.argwhere(~fine)[0])


def split_features(
    x: Floats, train: Ints, test: Ints, *, standardise: bool, names: Sequence[str], where: str
) -> FeatureSplit:
    """The two parts of a feature matrix as float32, standardised if requested.

    `x` is (n, F), or (n, ..., F) with one scale for each of F channels; it must have passed
    `find_unusable`.
    """
    scale = fit_scale(x[train].reshape(-1, x.shape[-1])) if standardise else None
    parts = (
        [x[train], x[test]]
        if scale is None
        else [apply_scale(x[rows], scale) for rows in (train, test)]
    )
    for part in parts:
        if (at := find_unusable(part)) is not None:
            raise DataError(
                f"{where}: {names[at[-1]]!r} hardly varies in the training part, so other values "
                "exceed the range of 32 bits; remove it, or set standardise = false."
            )
    if scale is not None:  # one entry for each value of a sample
        scale = Scale(*(each * prod(x.shape[1:-1]) for each in scale))
    return FeatureSplit(parts[0].astype(np.float32), parts[1].astype(np.float32), scale)


def fit_scale(train: Floats) -> Scale:
    """The scale on which the training part has mean 0 and standard deviation 1.

    A column that is constant in training is only shifted.

    >>> fit_scale(np.array([[1.0, 5.0], [3.0, 5.0]]))
    Scale(centre=(2.0, 5.0), width=(1.0, 1.0))
    """
    deviation = train.std(axis=0)  # (F,)
    is_constant = (train.min(axis=0) == train.max(axis=0)) | (deviation == 0)
    mean = np.where(is_constant, train[0], train.mean(axis=0))
    width = np.where(is_constant, 1.0, deviation)
    return Scale(tuple(mean.tolist()), tuple(width.tolist()))


def apply_scale(x: Floats, scale: Scale) -> Floats:
    """Scale samples (n, F) by the statistics of the training part.

    >>> apply_scale(np.array([[5.0, 5.0]]), Scale(centre=(2.0, 5.0), width=(1.0, 1.0))).tolist()
    [[3.0, 0.0]]
    """
    with np.errstate(over="ignore"):  # the caller rejects infinities and can name the column
        found: Floats = (x - np.array(scale.centre)) / np.array(scale.width)
    return found
