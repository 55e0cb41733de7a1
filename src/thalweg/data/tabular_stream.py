"""Measurements in the order of time: who gets which row, and a scale that never looks ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from thalweg.core.errors import DataError, require
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.columns import read_codes, read_table

if TYPE_CHECKING:
    import pyarrow as pa

RowAssignment = Literal["contiguous", "interleaved"]
MAX_DEVIATION = 5.0  # deviations from the mean, beyond which a value is cut
MIN_RELATIVE_VARIANCE = 1e-12  # of the mean square: a variance below that is rounding


def assign_rows(num_rows: int, num_clients: int, how: RowAssignment) -> Ints:
    """(n,) the client of each row: a stretch of time for each, or every row to the next one in turn.

    >>> assign_rows(7, 3, "contiguous").tolist(), assign_rows(7, 3, "interleaved").tolist()
    ([0, 0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2, 0])
    """
    require(
        num_clients <= num_rows,
        f"{num_rows} rows cannot be shared among {num_clients} clients.",
    )
    in_turn = np.arange(num_rows) % num_clients
    return np.sort(in_turn) if how == "contiguous" else in_turn


def standardise_online(x: Floats, group: Ints) -> Floats32:
    r"""Every row on the scale of what its client has seen by then, that row included.

    .. math::  z_t = (x_t - m_t) / s_t, \qquad
               m_t = \frac1t \sum_{i \le t} x_i, \quad s_t^2 = \frac1t \sum_{i \le t} (x_i - m_t)^2

    Rows are in the order of time, and a client knows neither its own future nor the others' rows. A column that
    has not moved yet is 0; values are cut at `MAX_DEVIATION` deviations, because the first move of one is as many of
    them as the root of the rows before it.

    >>> z = standardise_online(np.array([[1.0], [9.0], [3.0], [9.0]]), np.array([0, 1, 0, 1]))
    >>> z.ravel().tolist()  # 1, 3: mean 2, deviation 1
    [0.0, 0.0, 1.0, 0.0]
    """
    scaled = np.empty(x.shape, dtype=np.float32)
    for client in np.unique(group):
        rows = np.flatnonzero(group == client)
        scaled[rows] = _standardise_client(x[rows])
    return scaled


def _standardise_client(x: Floats) -> Floats:
    """The same for the rows (n, F) of one client."""
    moved = x - x[0]  # sums of squares are exact enough near the beginning, not near zero
    count = np.arange(1, len(x) + 1)[:, None]
    mean = np.cumsum(moved, axis=0) / count
    mean_square = np.cumsum(moved**2, axis=0) / count
    variance = mean_square - mean**2
    varies = variance > MIN_RELATIVE_VARIANCE * mean_square
    deviation = np.sqrt(np.where(varies, variance, 1.0))
    return np.clip(np.where(varies, (moved - mean) / deviation, 0.0), -MAX_DEVIATION, MAX_DEVIATION)


def make_stream_dataset(
    name: str,
    x: Floats,
    y: Ints,
    group: Ints,
    time: Floats,
    *,
    standardise: bool,
    class_names: tuple[str, ...],
    group_names: tuple[str, ...] = (),
) -> Dataset:
    """A data set of which every row arrives, and none is set aside for testing."""
    inputs = standardise_online(x, group) if standardise else x.astype(np.float32)
    return Dataset(
        name=name,
        x=inputs,
        y=y,
        x_test=np.empty((0, x.shape[1]), dtype=np.float32),
        y_test=np.empty(0, dtype=np.int64),
        num_classes=len(class_names),
        group=group,
        time=time,
        class_names=class_names,
        group_names=group_names,
        scale="moving" if standardise else None,
    )


def find_file(
    title: str, files: Sequence[str], folders: Sequence[str], data_dir: Path | None, way: str
) -> Path:
    """The first of some files that is in a folder where data sets are looked for."""
    places = search.list_folders(folders, data_dir)
    for place in places:
        for name in files:
            if (place.folder / name).is_file():
                return place.folder / name
    ways = [way, search.manual_instructions(files[0])]
    raise search.not_found_error(title, "is not downloaded by itself", ways, places)


def read_checked_table(file: Path, columns: Sequence[str]) -> pa.Table:
    """A table that has rows, and each of these columns once."""
    table = read_table(file)
    for wrong, many in (("there is no", 0), ("there is more than one", 2)):
        found = [name for name in columns if min(table.column_names.count(name), 2) == many]
        if found:
            raise DataError(
                f"{file}: {wrong} column {', '.join(found)}; expected {', '.join(columns)}, "
                f"got {', '.join(table.column_names)}."
            )
    if table.num_rows == 0:
        raise DataError(f"{file}: expected rows, got none.")
    return table


def read_labels(table: pa.Table, name: str, file: Path, known: Mapping[str, int]) -> Ints:
    """(n,) what each word of a column stands for; upper and lower case are the same."""
    coded, words = read_codes(table, name, file)
    strange = [place for place, word in enumerate(words) if word.lower() not in known]
    if strange:
        row = int(np.argmax(coded == strange[0]))
        raise DataError(
            f"{file}: row {row + 1}, column {name!r} is {words[strange[0]]!r}; "
            f"expected one of {', '.join(known)}."
        )
    return np.array([known[word.lower()] for word in words], dtype=np.int64)[coded]
