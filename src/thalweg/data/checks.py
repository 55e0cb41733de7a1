"""Checks of user data: columns that probably leak the target, and repeated rows.

The functions return sentences for the plan; they never change the data.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Ints
from thalweg.data.base import Dataset, DataSource
from thalweg.data.in_memory import InMemory
from thalweg.data.own import Rules

MIN_ROWS = 50  # fewer rows do not allow a judgement
MAX_ROWS = 20_000  # more rows are thinned out
PURE = 0.98  # share of neighbours with the same label from which a column determines the label
IDENTIFIER_NAME = re.compile(r"(^|_)(id|idx|index|key|uuid|row|no|nr|number)$", re.IGNORECASE)
TIME_NAME = re.compile(r"(^|_)(time|timestamp|date|datetime|day|month|year)(_|$)", re.IGNORECASE)


class DataWarning(UserWarning):
    """Warning about data whose results may mislead."""


def is_own_data(source: DataSource) -> bool:
    """Whether a source reads data of the user."""
    return isinstance(source, Rules | InMemory)


def warn_about_data(source: DataSource, data: Dataset) -> None:
    """Issue a `DataWarning` for each problem of user data."""
    if is_own_data(source):
        for problem in find_problems(data):
            warnings.warn(problem, DataWarning, stacklevel=3)


def find_problems(data: Dataset) -> list[str]:
    """Return warnings about probable leaks and repeated rows, one sentence each.

    >>> x = np.arange(100.0).reshape(50, 2)
    >>> data = Dataset.from_frame({"a": np.tile(x[:, 0], 2), "sick": [0, 1] * 50}, label="sick")
    >>> find_problems(data)
    ['50 of 100 rows repeat another row exactly; 10 of the 20 test rows are also ...']
    """
    if data.kind != "features" or data.x.ndim != 2:
        return [*_find_rare_classes(data), *_find_repeated_rows(data)]
    return [*_find_rare_classes(data), *_find_leaks(data), *_find_repeated_rows(data)]


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


def _find_leaks(data: Dataset) -> list[str]:
    x = data.x
    if len(x) < MIN_ROWS:
        return []
    rows = _thin_out(len(x))
    names = data.columns or tuple(f"column {i}" for i in range(x.shape[1]))
    found = []
    for position, name in enumerate(names):
        if "=" in name:  # a category
            continue
        values = x[:, position]
        if reason := _describe_leak(name, values, values[rows], data.y[rows], data.client):
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
    drop = f"Drop it if it is not known when predictions are made (--set data.drop={name})."
    if _determines(sample, targets):
        return f"{name!r} alone almost determines the target; it may be a leak. {drop}"
    distinct = len(np.unique(values))
    is_distinct = distinct > 0.9 * len(values)
    if _increases(values, client) and distinct > 2:
        return (
            f"{name!r} never decreases from row to row, like a time or a counter. Name it as the "
            f"time column (--set data.time={name}), or drop it (--set data.drop={name})."
        )
    if IDENTIFIER_NAME.search(name) and is_distinct:
        return f"{name!r} looks like an identifier: {distinct} different values. {drop}"
    if TIME_NAME.search(name):
        return f"{name!r} looks like a time. Name it as the time column (--set data.time={name})."
    return ""


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
    rows = np.concatenate([_hash_rows(data.x, data.y), _hash_rows(data.x_test, data.y_test)])
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
    remedy = "" if data.time is not None else ", or hold out by time or by client"
    return [f"{text}. Remove repeated rows{remedy}."]


def _hash_rows(x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """(n,) one number per row of samples and targets; equal rows have equal numbers."""
    hashes = np.zeros(len(x), dtype=np.uint64)
    factor = np.uint64(0x9E3779B97F4A7C15)
    for part in (x.reshape(len(x), -1), y.reshape(len(y), -1)):
        whole = np.ascontiguousarray(part)
        width = whole.shape[1] * whole.itemsize
        raw = whole.view(np.uint8).reshape(len(whole), width) if width else None
        if raw is None:
            continue
        padded = np.zeros((len(raw), -(-width // 8) * 8), dtype=np.uint8)
        padded[:, :width] = raw
        for column in padded.view(np.uint64).T:
            hashes = (hashes ^ column) * factor
            hashes ^= hashes >> np.uint64(29)
    return hashes


def _thin_out(num_rows: int) -> Ints:
    if num_rows <= MAX_ROWS:
        return np.arange(num_rows)
    return np.sort(np.random.default_rng(0).permutation(num_rows)[:MAX_ROWS])
