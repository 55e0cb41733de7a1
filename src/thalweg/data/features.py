"""Numbers of the user's own, checked and put on one scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Floats, Floats32, Ints

LARGEST = float(np.finfo(np.float32).max)


def first_unusable(values: npt.NDArray[np.floating]) -> tuple[int, ...] | None:
    """Where the first value is that is not finite or does not fit in 32 bits; None: all are fine.

    >>> first_unusable(np.array([[1.0, 2.0], [3.0, np.nan]]))
    (1, 1)
    """
    fine = np.abs(values) <= LARGEST  # nan compares false
    if fine.all():
        return None
    return tuple(int(i) for i in np.argwhere(~fine)[0])


def feature_parts(
    x: Floats, train: Ints, test: Ints, *, standardise: bool, names: Sequence[str], where: str
) -> tuple[Floats32, Floats32]:
    """The two parts of a feature matrix as float32, standardised or as they are.

    `x` must have passed `first_unusable`.
    """
    parts = standardised(x[train], x[test]) if standardise else (x[train], x[test])
    for part in parts:
        if (at := first_unusable(part)) is not None:
            raise DataError(
                f"{where}: {names[at[1]]!r} hardly varies in the training part, so that other "
                "values leave the range of 32 bits; leave it out, or set standardise = false."
            )
    return parts[0].astype(np.float32), parts[1].astype(np.float32)


def standardised(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Both parts on the scale on which the training part has mean 0 and standard deviation 1.

    The test part is scaled by the training part's numbers, as a new sample would be. A column that
    is constant in training is only shifted: its deviation is a rounding error, or 0.

    >>> a, b = standardised(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[5.0, 5.0]]))
    >>> a.tolist(), b.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[3.0, 0.0]])
    """
    deviation = train.std(axis=0)  # (F,)
    is_constant = (train.min(axis=0) == train.max(axis=0)) | (deviation == 0)
    mean = np.where(is_constant, train[0], train.mean(axis=0))
    scale = np.where(is_constant, 1.0, deviation)
    with np.errstate(over="ignore"):  # the caller refuses infinities, and can name the column
        return (train - mean) / scale, (test - mean) / scale
