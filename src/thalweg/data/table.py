"""Your own table: one ``.parquet`` or ``.csv`` file with a column for the label."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thalweg.core.errors import ConfigError, DataError, UnknownName, require
from thalweg.core.types import Floats, Ints
from thalweg.data.base import Dataset
from thalweg.data.features import feature_parts, first_unusable
from thalweg.data.search import user_file
from thalweg.data.split import split_rows

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".csv")
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Table:
    """Rows of a Parquet or CSV file, each with a label and, if you like, a client and a time.

    Labels and clients may be text or whole numbers; their distinct values, in sorted order, are the
    classes and the clients. Times may be dates, moments (then in seconds since 1970) or numbers.
    Rows keep the order of the file. With a time column the test part is the end of every client's
    history, otherwise the same random part of every class for every run.
    """

    path: str
    """Absolute, or below ``--data-dir``, the current folder or THALWEG_DATA."""
    label: str = "label"
    client: str | None = None
    time: str | None = None
    features: tuple[str, ...] | None = None
    """Columns to learn from; none: all numeric ones that have no other part."""
    test_fraction: float = 0.2
    standardise: bool = True
    """Features get mean 0 and deviation 1 in the training part."""

    def __post_init__(self) -> None:
        require(
            self.path.lower().endswith(SUFFIXES),
            f"expected a path ending in {' or '.join(SUFFIXES)}, got {self.path!r}.",
        )
        require(
            0 < self.test_fraction < 1,
            f"test_fraction must lie in (0, 1), got {self.test_fraction}.",
        )
        parts = [name for name in (self.label, self.client, self.time) if name is not None]
        require(
            len(set(parts)) == len(parts),
            f"label, client and time must be different columns, got {', '.join(parts)}.",
        )
        if self.features is not None:
            require(len(self.features) > 0, "features must name a column; leave it out for all.")
            require(
                len(set(self.features)) == len(self.features),
                f"features names a column twice: {', '.join(self.features)}.",
            )
            require(
                self.label not in self.features,
                f"features must not contain the label {self.label!r}: it would be given away.",
            )

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read and check the whole file; the same for every seed."""
        file = user_file(self.path, data_dir)
        table = _read(file)
        names = self._feature_names(table, file)
        if table.num_rows == 0:
            raise DataError(f"{file}: expected rows, got none.")
        labels, class_names = _codes(table, self.label, file)
        if len(class_names) < 2:
            raise DataError(
                f"{file}: column {self.label!r} is {class_names[0]!r} in every row; "
                "expected at least two classes."
            )
        group: Ints | None = None
        group_names: tuple[str, ...] = ()
        if self.client is not None:
            group, group_names = _codes(table, self.client, file)
        time = None if self.time is None else _seconds(table, self.time, file)
        x = np.column_stack([_numbers(table, name, file) for name in names])  # (n, F)
        train, test = split_rows(labels, group, time, self.test_fraction, str(file))
        x_train, x_test = feature_parts(
            x, train, test, standardise=self.standardise, names=names, where=str(file)
        )
        return Dataset(
            name=file.stem,
            x=x_train,
            y=labels[train],
            x_test=x_test,
            y_test=labels[test],
            num_classes=len(class_names),
            group=None if group is None else group[train],
            time=None if time is None else time[train],
            class_names=class_names,
            group_names=group_names,
        )

    def _feature_names(self, table: pa.Table, file: Path) -> list[str]:
        """Check the columns that were named, and find those that were not."""
        import pyarrow as pa

        known = table.column_names
        named = {"label": self.label, "client": self.client, "time": self.time}
        for part, name in [*named.items(), *(("feature", name) for name in self.features or ())]:
            if name is not None and name not in known:
                raise UnknownName(f"{part} column in {file.name}:", name, known)
        name, times = Counter(known).most_common(1)[0]
        if times > 1:
            raise DataError(f"{file}: {times} columns are called {name!r}.")
        if self.features is not None:
            return list(self.features)
        rest = [name for name in known if name not in named.values()]
        empty = [name for name in rest if pa.types.is_null(table.schema.field(name).type)]
        if empty:
            raise DataError(
                f"{file}: column {empty[0]!r} has no values at all. "
                "Drop it, or name the columns to use in features."
            )
        numeric = [name for name in rest if _is_numeric(table.schema.field(name).type)]
        if not numeric:
            types = ", ".join(f"{name} ({table.schema.field(name).type})" for name in rest)
            raise ConfigError(
                f"{file} has no numeric column to learn from besides label, client and time; "
                f"got {types or 'no other column'}."
            )
        return numeric


def _read(file: Path) -> pa.Table:
    import pyarrow as pa

    try:
        table = _read_parquet(file) if file.suffix.lower() == ".parquet" else _read_csv(file)
        table.validate(full=True)
        _ = table.column_names  # decoded here, where a damaged name can be reported
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file} is not a readable {file.suffix[1:]} file ({reason}). Nothing was loaded."
        ) from error
    return table


def _read_parquet(file: Path) -> pa.Table:
    import pyarrow.parquet as pq

    # Not read_table, which takes folders called a=b for columns.
    with pq.ParquetFile(file, page_checksum_verification=True) as reader:
        return reader.read()


def _read_csv(file: Path) -> pa.Table:
    from pyarrow import csv

    # One block, so that the types are inferred from all rows and not from the first megabyte.
    block = min(max(file.stat().st_size, 1 << 16), 2**31 - 1)
    # Text may be missing as well; a class that is really called NA is written in quotes.
    convert = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    return csv.read_csv(
        file, read_options=csv.ReadOptions(block_size=block), convert_options=convert
    )


def _is_numeric(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )


def _whole(table: pa.Table, name: str, file: Path) -> pa.ChunkedArray[Any]:
    """A column, without the packing of repeated values and without gaps."""
    import pyarrow as pa

    column = table.column(name)
    if isinstance(column.type, pa.DictionaryType):
        column = column.cast(column.type.value_type)
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise DataError(
            f"{file}: row {row + 1}, column {name!r} is missing; expected a value in every row. "
            "Fill in or drop such rows first."
        )
    return column


def _numbers(table: pa.Table, name: str, file: Path) -> Floats:
    """A column as float64, every value finite."""
    import pyarrow as pa

    column = _whole(table, name, file)
    if not _is_numeric(column.type):
        raise DataError(
            f"{file}: column {name!r} is {column.type}, for example {str(column[0])!r} in row 1; "
            "expected numbers."
        )
    values = column.cast(pa.float64(), safe=False).to_numpy()
    if (at := first_unusable(values)) is not None:
        raise DataError(
            f"{file}: row {at[0] + 1}, column {name!r} is {values[at]}; "
            "expected a finite number that fits in 32 bits."
        )
    return np.asarray(values, dtype=np.float64)


def _codes(table: pa.Table, name: str, file: Path) -> tuple[Ints, tuple[str, ...]]:
    """Numbers 0, 1, ... for the distinct values in sorted order, and the values as text."""
    import pyarrow as pa

    column = _whole(table, name, file)
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = _numbers(table, name, file)
        fractional = numbers != np.floor(numbers)
        if fractional.any():
            row = int(np.argmax(fractional))
            raise DataError(
                f"{file}: row {row + 1}, column {name!r} is {numbers[row]}; expected classes or "
                "clients, whole numbers or text, not a quantity."
            )
        column = pa.chunked_array([numbers.astype(np.int64)])
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_text(kind)):
        raise DataError(f"{file}: column {name!r} is {kind}; expected whole numbers or text.")
    packed = column.combine_chunks().dictionary_encode()
    values: list[Any] = packed.dictionary.to_pylist()
    order = sorted(range(len(values)), key=values.__getitem__)
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values))
    codes = rank[packed.indices.to_numpy()]
    if "" in values:
        row = int(np.argmax(codes == rank[values.index("")]))
        raise DataError(f"{file}: row {row + 1}, column {name!r} is empty; expected a value.")
    return codes, tuple(str(values[i]) for i in order)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _seconds(table: pa.Table, name: str, file: Path) -> Floats:
    """A column of moments as float64: seconds since 1970, or numbers as they are."""
    import pyarrow as pa

    column = _whole(table, name, file)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    if isinstance(column.type, pa.TimestampType):
        ticks = column.cast(pa.int64()).to_numpy()
        return np.asarray(ticks / TICKS_PER_SECOND[column.type.unit], dtype=np.float64)
    if not _is_numeric(column.type):
        raise DataError(
            f"{file}: column {name!r} is {column.type}, for example {str(column[0])!r} in row 1; "
            "expected moments such as 2026-01-31 12:00:00, or numbers."
        )
    return _numbers(table, name, file)
