"""Splits into training and test rows for data sets without their own split."""

from __future__ import annotations

import numpy as np

from thalweg.core.errors import DataError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Ints

# A split is part of the data set, not of the run: all seeds have the same test samples.
SPLIT_SEED = 80_20


def split_rows(
    labels: Ints, group: Ints | None, time: Floats | None, test_fraction: float, where: str
) -> tuple[Ints, Ints]:
    """Training rows and test rows, both ascending.

    With a time column the test part is the end of every client's history, so that no training row
    is later than a test row of the same client; otherwise it is a random part of every class.
    """
    if time is not None:
        group = np.zeros(len(labels), dtype=np.int64) if group is None else group
        train, test = split_last(group, time, test_fraction)
    else:
        train, test = stratified_split(labels, test_fraction)
    _require_test(
        test, "client" if time is not None else "class", test_fraction, where, len(labels)
    )
    return train, test


def split_each_client(group: Ints, test_fraction: float, where: str) -> tuple[Ints, Ints]:
    """A random fraction of every client's rows for testing; the same rows every time.

    At least one row of a client remains for training.

    >>> train, test = split_each_client(np.array([0, 1, 0, 1, 0, 0, 2]), 0.25, "here")
    >>> len(train), len(test)  # of 4, 2 and 1 rows
    (5, 2)
    """
    train, test = stratified_split(group, test_fraction)
    _require_test(test, "client", test_fraction, where, len(group))
    return train, test


def split_clients(client: Ints, test_fraction: float, where: str) -> tuple[Ints, Ints]:
    """All rows of some clients for testing; the same clients every time.

    >>> train, test = split_clients(np.array([0, 1, 0, 1]), 0.5, "here")
    >>> len(train), len(test)
    (2, 2)
    """
    train, test = split_by_unit(np.zeros(len(client), dtype=np.int64), client, test_fraction)
    if len(test) == 0:
        raise DataError(
            f"{where}: no client is small enough for a test part of {test_fraction:g} of all rows; "
            "use a larger test_fraction, or hold out rows."
        )
    return train, test


def stratified_split(labels: Ints, test_fraction: float) -> tuple[Ints, Ints]:
    """The same random fraction of every class for testing; the same rows every time.

    >>> train, test = stratified_split(np.array([0, 1, 0, 1, 0, 1, 0, 1]), test_fraction=0.25)
    >>> len(train), len(test)
    (6, 2)
    """
    shuffled = rng_for(SPLIT_SEED, Draw.DATA).permutation(len(labels)).astype(np.float64)
    return split_last(labels, shuffled, test_fraction)


def split_by_unit(labels: Ints, unit: Ints, test_fraction: float) -> tuple[Ints, Ints]:
    """Whole units (patients, lesions, writers) for testing, about the same share of every class.

    Images of one unit are similar, so a unit in both parts would leak labels. In every class the
    units are shuffled, and the number of test units is chosen so that their samples are closest to
    the fraction; at least one unit remains for training. A unit with several classes counts for its
    most frequent class.

    >>> train, test = split_by_unit(np.array([0, 0, 0, 0]), np.array([5, 5, 9, 9]), 0.25)
    >>> len(train), len(test)  # 0 and 2 of 4 are equally close to 1: the larger one is used
    (2, 2)
    """
    _, unit = np.unique(unit, return_inverse=True)  # 0 .. U - 1
    sizes = np.bincount(unit)  # (U,)
    counts = np.zeros((len(sizes), int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (unit, labels), 1)
    main_class = counts.argmax(axis=1)  # (U,)
    shuffled = rng_for(SPLIT_SEED, Draw.DATA).permutation(len(sizes))
    is_test = np.zeros(len(sizes), dtype=bool)
    for c in np.unique(main_class):
        mine = shuffled[main_class[shuffled] == c]
        taken = np.concatenate([[0], np.cumsum(sizes[mine])])[
            : len(mine)
        ]  # sizes of 0, 1, 2, ... units
        error = np.abs(taken - test_fraction * sizes[mine].sum())
        is_test[mine[: len(error) - 1 - error[::-1].argmin()]] = (
            True  # ties go to the larger number
        )
    return np.flatnonzero(~is_test[unit]), np.flatnonzero(is_test[unit])


def split_last(group: Ints, order: Floats, test_fraction: float) -> tuple[Ints, Ints]:
    """Sort every group by `order`; its last rows, rounded to the nearest number, are for testing.

    At least one row of a group remains for training. The sort is stable.

    >>> train, test = split_last(np.array([0, 0, 0, 0]), np.array([3.0, 1.0, 4.0, 2.0]), 0.25)
    >>> train.tolist(), test.tolist()
    ([0, 1, 3], [2])
    """
    sizes = np.bincount(group)  # (G,)
    num_test = np.minimum(np.floor(sizes * test_fraction + 0.5), np.maximum(sizes - 1, 0))
    rows = np.lexsort((order, group))  # (n,) ordered by group, then by `order`
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(len(group)) - starts[group[rows]]  # (n,) position within the group
    is_test = rank >= (sizes - num_test)[group[rows]]
    return np.sort(rows[~is_test]), np.sort(rows[is_test])


def _require_test(test: Ints, within: str, fraction: float, where: str, num_rows: int) -> None:
    if len(test) == 0:
        raise DataError(
            f"{where}: a test part of {fraction:g} of every {within} is empty with "
            f"{num_rows} rows; use more rows or a larger test_fraction."
        )
