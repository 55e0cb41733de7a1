"""Checks of user data: columns that probably leak the target, and repeated rows.

The functions return sentences for the plan; they never change the data.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.remedies import format_setting, messages_for
from thalweg.core.types import Ints
from thalweg.data.base import Dataset, DataSource
from thalweg.data.columns import NUMBER
from thalweg.data.features import Scale
from thalweg.data.in_memory import InMemory
from thalweg.data.own import Rules
from thalweg.data.preprocessing import MISSING, InputColumn
from thalweg.data.row_hashes import hash_rows

MIN_ROWS = 50  # fewer rows do not allow a judgement
MAX_ROWS = 20_000  # more rows are thinned out
PURE = 0.98  # share of neighbours with the same label from which a column determines the label
MIN_DISTINCT, MIN_SHARE = 20, 0.1  # different values of an identifier, and their share of the rows
LARGE_TARGET = 20.0  # root mean square above which the default learning rate may be too large
EVEN = 0.8  # share of the values of an identifier that occur equally often
IDENTIFIER_NAME = re.compile(r"(^|_)(id|idx|index|key|uuid|row|no|nr|number)$", re.IGNORECASE)
TIME_NAME = re.compile(r"(^|_)(time|timestamp|date|datetime|day|month|year)(_|$)", re.IGNORECASE)


class DataWarning(UserWarning):
    """Warning about data whose results may mislead."""


def is_own_data(source: DataSource) -> bool:
    """Whether a source reads data of the user."""
    return isinstance(source, Rules | InMemory)


def warn_about_data(source: DataSource, data: Dataset) -> None:
    """Issue a `DataWarning` for each problem of user data."""
    if not is_own_data(source):
        return
    with messages_for("dataset" if isinstance(source, InMemory) else "run"):
        problems = find_problems(data)
    for problem in problems:
        warnings.warn(problem, DataWarning, stacklevel=3)


def find_problems(data: Dataset) -> list[str]:
    """Return warnings about probable leaks and repeated rows, one sentence each.

    >>> x = np.sqrt(np.arange(50.0))
    >>> data = Dataset.from_frame({"a": np.tile(x, 2), "sick": [0, 1] * 50}, label="sick")
    >>> print(*find_problems(data))
    50 of 100 rows repeat another row exactly; 10 of the 20 test rows are also ...
    """
    leaks = _find_leaks(data) if data.kind == "features" and data.x.ndim == 2 else []
    return [
        *_find_large_targets(data),
        *_find_rare_classes(data),
        *_find_small_clients(data),
        *_find_number_texts(data),
        *leaks,
        *_find_repeated_rows(data),
    ]


def _find_large_targets(data: Dataset) -> list[str]:
    """Return a warning about numbers to predict that are so large that training may diverge."""
    if data.task != "regression":
        return []
    size = float(np.sqrt(np.mean(np.square(data.y, dtype=np.float64))))
    if size <= LARGE_TARGET:
        return []
    return [
        f"the numbers to predict are large (root mean square {size:.3g}) and are not scaled, so "
        "that training may diverge. Subtract their mean and divide by their standard deviation, or "
        f"use a smaller learning rate ({format_setting('local.lr')})."
    ]


def _find_rare_classes(data: Dataset) -> list[str]:
    """Return a warning about classes with one row, which may be misspelt labels."""
    if data.task != "classification" or len(data.y) < MIN_ROWS:
        return []
    every = np.concatenate([data.y, data.y_test])
    rare = np.flatnonzero(np.bincount(every, minlength=data.num_classes) == 1)
    if not len(rare):
        return []
    names = [data.class_names[code] if data.class_names else str(code) for code in rare[:5]]
    return [
        f"{len(rare)} of {data.num_classes} classes have one row ({', '.join(map(repr, names))}); "
        "check the spelling of the labels."
    ]


def _find_small_clients(data: Dataset) -> list[str]:
    """Return a warning about clients with one training row."""
    if data.client is None:
        return []
    small = np.flatnonzero(np.bincount(data.client) == 1)
    if not len(small):
        return []
    names = [data.client_names[code] if data.client_names else str(code) for code in small[:5]]
    number, more = len(np.unique(data.client)), ", ..." if len(small) > 5 else ""
    return [
        f"{len(small)} of {number} clients have one training row "
        f"({', '.join(map(repr, names))}{more}): they learn from it once, and may have no test "
        "row. Check the client column, or combine such clients."
    ]


def _find_number_texts(data: Dataset) -> list[str]:
    """Return warnings about categories most of which are numbers."""
    found = []
    for column in data.encoding:
        texts = [each for each in column.categories if each != MISSING]
        others = [each for each in texts if not re.match(NUMBER, each.strip())]
        if texts and 0 < len(others) < len(texts) / 2:
            found.append(
                f"{column.name!r} is used as {len(texts)} categories, but most of its texts are "
                f"numbers; {', '.join(map(repr, others[:3]))} is not. Correct or remove such "
                "values if it is a quantity."
            )
    return found


def _find_leaks(data: Dataset) -> list[str]:
    x = data.x
    if len(x) < MIN_ROWS:
        return []
    rows = _thin_out(len(x))
    columns = data.encoding or tuple(
        InputColumn(name) for name in data.columns or (f"column {i}" for i in range(x.shape[1]))
    )
    found, at = [], 0
    width = np.ones(x.shape[1]) if not isinstance(data.scale, Scale) else data.scale.width
    centre = np.zeros(x.shape[1]) if not isinstance(data.scale, Scale) else data.scale.centre
    for column in columns:
        first, at = at, at + len(column.inputs)
        both = np.concatenate([x[:, first:at], data.x_test[:, first:at]])
        if column.categories:
            reason = _describe_identifier(column.name, both.argmax(axis=1).astype(np.float64))
        else:
            values = x[:, first]
            reason = _describe_leak(
                column.name, values, values[rows], data.y[rows], data.client
            ) or _describe_identifier(column.name, both[:, 0] * width[first] + centre[first])
        if reason:
            found.append(reason)
    return found


def _describe_leak(
    name: str,
    values: npt.NDArray[Any],
    sample: npt.NDArray[Any],
    targets: npt.NDArray[np.generic],
    client: Ints | None,
) -> str:
    """Return why a column is suspicious; empty: it is not."""
    drop, as_time = format_setting("data.drop", [name]), format_setting("data.time", name)
    if _determines(sample, targets):
        return (
            f"{name!r} alone almost determines the target; it may be a leak. Drop it if it is not "
            f"known when predictions are made ({drop})."
        )
    if _increases(values, client) and len(np.unique(values)) > 2:
        return (
            f"{name!r} never decreases from row to row, like a time or a counter. Name it as the "
            f"time column ({as_time}), or drop it ({drop})."
        )
    if TIME_NAME.search(name):
        return f"{name!r} looks like a time. Name it as the time column ({as_time})."
    return ""


def _describe_identifier(name: str, values: npt.NDArray[Any]) -> str:
    """Return a warning about whole numbers or codes of texts that look like an identifier.

    An identifier has many different values for its number of rows, and either a typical name, or
    nearly the same number of rows for each value, which are then consecutive or occur repeatedly.
    """
    error = 1e-6 + 2e-7 * float(np.ptp(values))  # of values that were stored in 32 bits
    if error < 0.1 and (np.abs(values - np.rint(values)) > error).any():
        return ""
    found, counts = np.unique(values, return_counts=True)
    if len(found) < MIN_DISTINCT or len(found) < MIN_SHARE * len(values):
        return ""
    usual = int(np.bincount(counts).argmax())
    is_even = float((counts == usual).mean()) > EVEN
    is_dense = found[-1] - found[0] < 2 * len(found)
    if not (IDENTIFIER_NAME.search(name) or (is_even and (usual > 1 or is_dense))):
        return ""
    return (
        f"{name!r} looks like an identifier: {len(found)} different values in {len(values)} rows. "
        f"Drop it ({format_setting('data.drop', [name])}), or name it as the client column "
        f"({format_setting('data.client', name)})."
    )


def _determines(values: npt.NDArray[Any], targets: npt.NDArray[np.generic]) -> bool:
    """Whether neighbours in the order of the column nearly always have the same target.

    For classes, the share of equal neighbours must be far above that of random neighbours; for
    numbers, the column must be a monotone function of the target.
    """
    if len(np.unique(values)) < 2 or targets.ndim > 1:
        return False
    shuffled = np.random.default_rng(0).permutation(len(values))  # ties in random order
    order = shuffled[np.argsort(values[shuffled], kind="stable")]
    ordered = targets[order]
    if targets.dtype.kind == "f":
        steps = np.diff(ordered.astype(np.float64))
        return bool((steps >= 0).mean() > PURE or (steps <= 0).mean() > PURE)
    chance = float(((np.unique(targets, return_counts=True)[1] / len(targets)) ** 2).sum())
    pure = float((ordered[1:] == ordered[:-1]).mean())
    return pure > PURE and (1 - pure) < 0.1 * (1 - chance)


def _increases(values: npt.NDArray[Any], client: Ints | None) -> bool:
    """Whether the column never decreases within a client and often increases."""
    if client is not None:
        order = np.argsort(client, kind="stable")
        values, client = values[order], client[order]
        steps = np.diff(values)[client[1:] == client[:-1]]
    else:
        steps = np.diff(values)
    return len(steps) >= MIN_ROWS and bool((steps >= 0).all()) and (steps > 0).mean() > 0.5


def _find_repeated_rows(data: Dataset) -> list[str]:
    """Return a warning if more than one row in a hundred repeats another one.

    Memory-mapped samples are not checked, because all of them would have to be read.
    """
    if data.index is not None or data.index_test is not None:
        return []
    rows = np.concatenate([hash_rows(data.x, data.y), hash_rows(data.x_test, data.y_test)])
    n, num_test = len(rows), len(data.y_test)
    if n < MIN_ROWS:
        return []
    repeated = n - len(np.unique(rows))
    if repeated <= 0.01 * n:
        return []
    text = f"{repeated} of {n} rows repeat another row exactly"
    shared = int(np.isin(rows[n - num_test :], rows[: n - num_test]).sum())
    if shared:
        text += f"; {shared} of the {num_test} test rows are also training rows"
    remedy = ""
    if data.time is None:
        remedy = f", or hold out by time or by client ({format_setting('data.hold_out')})"
    return [f"{text}. Remove repeated rows{remedy}."]


def _thin_out(num_rows: int) -> Ints:
    if num_rows <= MAX_ROWS:
        return np.arange(num_rows)
    return np.sort(np.random.default_rng(0).permutation(num_rows)[:MAX_ROWS])
