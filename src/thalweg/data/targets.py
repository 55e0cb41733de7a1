"""The targets of user data: class labels or numbers, and the task that follows from them."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError, UnknownName
from thalweg.core.remedies import format_setting
from thalweg.core.types import Floats32, Ints
from thalweg.data.base import Task
from thalweg.data.features import find_unusable

# Up to this number of distinct whole numbers are classes; more may also be quantities.
MAX_INFERRED_CLASSES = 20


def check_task(task: Task | None) -> None:
    """Reject an unknown task; None: infer it."""
    if task not in (None, *get_args(Task)):
        raise UnknownName("task", str(task), get_args(Task))


def infer_task(values: npt.NDArray[Any], task: Task | None, where: str) -> Task:
    """Return the given task, or the one that fits the targets.

    Numbers with fractions, and several numbers per sample, mean regression. Text, and whole numbers
    with at most 20 distinct values, mean classification. Whole numbers with more distinct values
    are rejected, because they may be classes or quantities (counts, years, minutes).

    >>> infer_task(np.array([0.5, 1.0]), None, "y"), infer_task(np.array([0, 1]), None, "y")
    ('regression', 'classification')
    >>> infer_task(np.array([0, 1]), "regression", "y")
    'regression'
    """
    if task is not None:
        return task
    if values.ndim > 1:
        return "regression"
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)]
        if len(finite) < len(values) or (finite != np.floor(finite)).any():
            return "regression"
    if values.dtype.kind in "fiu":
        distinct = len(np.unique(values))
        if distinct > MAX_INFERRED_CLASSES:
            raise DataError(
                f"{where} has {distinct} distinct whole numbers in {len(values)} rows, from "
                f"{values.min():g} to {values.max():g}; more than {MAX_INFERRED_CLASSES} may be "
                f"classes or quantities. Set {format_setting('data.task', 'regression')} to "
                f"predict a number, or {format_setting('data.task', 'classification')} if each "
                "value is a class."
            )
    return "classification"


def convert_numbers(values: npt.NDArray[Any], where: str, first_row: int = 0) -> Floats32:
    """Convert the targets of a regression to float32, (n,) or (n, D).

    `first_row` is the number of the first row in messages.
    """
    if values.dtype.kind not in "fiub" or values.ndim not in (1, 2) or 0 in values.shape[1:]:
        raise DataError(
            f"{where}: a regression needs numbers of shape (n,) or (n, D), got {values.dtype} of "
            f"shape {values.shape}. Set {format_setting('data.task', 'classification')} for "
            "classes."
        )
    numbers = values.astype(np.float64)
    if (at := find_unusable(numbers)) is not None:
        column = f", column {at[1]}" if numbers.ndim > 1 else ""
        raise DataError(
            f"{where}: the target in row {at[0] + first_row}{column} is {numbers[at]}; expected a "
            "finite number that fits in 32 bits. Drop the row or fill in a value."
        )
    return numbers.astype(np.float32)


def strata(values: npt.NDArray[Any], task: Task) -> Ints:
    """Return (n,) the class of each row, for a split; all rows of a regression have class 0."""
    return values if task == "classification" else np.zeros(len(values), dtype=np.int64)
