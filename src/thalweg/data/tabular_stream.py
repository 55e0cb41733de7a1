"""Measurements in time order: assignment of rows to clients, and scaling without future rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import DataError, require
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data import search
from thalweg.data.base import Dataset, Targets
from thalweg.data.columns import read_codes, read_table

if TYPE_CHECKING:
    import pyarrow as pa

RowAssignment = Literal["contiguous", "interleaved"]
MAX_DEVIATION = 5.0  # values are clipped at this number of standard deviations
MIN_RELATIVE_VARIANCE = 1e-12  # relative to the mean square; smaller variances are rounding errors


@dataclass(frozen=True)
class DividedRows:
    """The fields of a source whose rows have no client and are divided among clients."""

    depends_on_seed: ClassVar[bool] = False

    num_clients: int = 10
    clients: RowAssignment = "contiguous"
    """contiguous: one period per client, replayed in parallel; interleaved: rows in turn."""
    standardise: bool = True
    """Scale features by what each client has seen so far, never by later rows."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, num_clients="[1, inf)")


def assign_rows(num_rows: int, num_clients: int, how: RowAssignment) -> Ints:
    """(n,) client of each row: one period per client, or rows in turn.

    >>> assign_rows(7, 3, "contiguous").tolist(), assign_rows(7, 3, "interleaved").tolist()
    ([0, 0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2, 0])
    """
    require(
        num_clients <= num_rows,
        f"{num_rows} rows cannot be divided among {num_clients} clients.",
    )
    in_turn = np.arange(num_rows) % num_clients
    return np.sort(in_turn) if how == "contiguous" else in_turn


def standardise_online(x: Floats, group: Ints) -> Floats32:
    r"""Standardise every row by the rows of its client up to and including that row.

    .. math::  z_t = (x_t - m_t) / s_t, \qquad
               m_t = \frac1t \sum_{i \le t} x_i, \quad s_t^2 = \frac1t \sum_{i \le t} (x_i - m_t)^2

    Rows are in time order; neither later rows nor rows of other clients are used. A column that is
    constant so far is 0. Values are clipped at `MAX_DEVIATION` standard deviations, because the
    first change of a constant column has sqrt(t - 1) of them.

    >>> z = standardise_online(np.array([[1.0], [9.0], [3.0], [9.0]]), np.array([0, 1, 0, 1]))
    >>> z.ravel().tolist()  # 1, 3: mean 2, standard deviation 1
    [0.0, 0.0, 1.0, 0.0]
    """
    scaled = np.empty(x.shape, dtype=np.float32)
    for client in np.unique(group):
        rows = np.flatnonzero(group == client)
        scaled[rows] = _standardise_client(x[rows])
    return scaled


def _standardise_client(x: Floats) -> Floats:
    """The same for the rows (n, F) of one client."""
    moved = x - x[0]  # sums of squares are accurate relative to the first row, not to zero
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
    y: Targets,
    group: Ints,
    time: Floats,
    *,
    standardise: bool,
    class_names: tuple[str, ...],
    client_names: tuple[str, ...] = (),
) -> Dataset:
    """A data set in which every row arrives and none is held out for testing.

    Without class names the targets are numbers (regression).
    """
    inputs = standardise_online(x, group) if standardise else x.astype(np.float32)
    return Dataset(
        name=name,
        x=inputs,
        y=y,
        x_test=np.empty((0, x.shape[1]), dtype=np.float32),
        y_test=y[:0],
        num_classes=len(class_names),
        client=group,
        time=time,
        class_names=class_names,
        client_names=client_names,
        scale="moving" if standardise else None,
    )


def find_file(
    title: str, files: Sequence[str], folders: Sequence[str], data_dir: Path | None, way: str
) -> Path:
    """The first of some files that is found in the search folders."""
    candidates = search.list_folders(folders, data_dir)
    for candidate in candidates:
        for name in files:
            if (candidate.folder / name).is_file():
                return candidate.folder / name
    ways = [way, search.manual_instructions(files[0])]
    raise search.not_found_error(title, "is not downloaded automatically", ways, candidates)


def read_checked_table(file: Path, columns: Sequence[str]) -> pa.Table:
    """A table with at least one row and each of these columns exactly once."""
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
    """(n,) label of each word in a column; case is ignored."""
    coded, words = read_codes(table, name, file)
    unknown = [code for code, word in enumerate(words) if word.lower() not in known]
    if unknown:
        row = int(np.argmax(coded == unknown[0]))
        raise DataError(
            f"{file}: row {row + 1}, column {name!r} is {words[unknown[0]]!r}; "
            f"expected one of {', '.join(known)}."
        )
    return np.array([known[word.lower()] for word in words], dtype=np.int64)[coded]
