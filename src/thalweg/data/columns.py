"""Columns of Parquet and CSV files as validated arrays."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from thalweg.core.errors import DataError
from thalweg.core.remedies import format_setting
from thalweg.core.size_limits import (
    MAX_COLUMNS,
    check_columns,
    check_memory,
    check_ratio,
    format_bytes,
)
from thalweg.core.types import Floats, Ints
from thalweg.data.features import find_unusable
from thalweg.data.times import parse_times

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

NUMBER = r"^[+-]?(0|[1-9][0-9]*|(0|[1-9][0-9]*)?\.[0-9]+|[1-9][0-9]*\.)([eE][+-]?[0-9]+)?$"
CSV_GROWTH = 4  # of "1," to eight bytes
CSV_VALUE = re.compile(rb'(?:"[^"]*+(?:""[^"]*+)*+"[^,\r\n]*+|[^,\r\n]*+)(,?)')
MAX_HEADER_BYTES = 16 << 20  # of the first line of a CSV file
FEWER_ROWS = "Use fewer rows or columns"
SHORT_TEXTS = "Use fewer rows, or shorten or drop long texts"
BATCH_BYTES = 16 << 20  # of texts that are decoded at once to count them
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def read_table(file: Path) -> pa.Table:
    """Read and validate the whole file; the suffix determines the format."""
    import pyarrow as pa

    try:
        table = _read_parquet(file) if file.suffix.lower() == ".parquet" else _read_csv(file)
        table.validate(full=True)
        _ = table.column_names  # decoded here, so that a damaged name is reported
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file} is not a readable {file.suffix[1:]} file ({reason}). Nothing was loaded."
        ) from error
    return table


def _read_parquet(file: Path) -> pa.Table:
    import pyarrow.parquet as pq

    # Not read_table, which interprets folders named a=b as columns.
    with pq.ParquetFile(file, page_checksum_verification=True) as reader:
        meta = reader.metadata
        check_columns(meta.num_columns, file)
        stored = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        chunks = [
            meta.row_group(i).column(j)
            for i in range(meta.num_row_groups)
            for j in range(meta.num_columns)
        ]
        columns = [meta.schema.column(j) for j in range(meta.num_columns)]
        widths = {column.path: max(8, column.length or 0) for column in columns}
        values = sum(chunk.num_values * widths[chunk.path_in_schema] for chunk in chunks)
        check_memory(max(values, stored), str(file), FEWER_ROWS)
        check_ratio(max(values, stored), file)
        check_memory(_count_text_bytes(file, chunks), f"{file}: the text", SHORT_TEXTS)
        return reader.read()


def _count_text_bytes(file: Path, chunks: Sequence[pq.ColumnChunkMetaData]) -> int:
    """Return the size of all texts after decoding, without decoding them all at once.

    A text that is stored once may occur in many rows (dictionary), as may the start of a text
    (delta). Texts in other encodings are not larger than stored.
    """
    import pyarrow.parquet as pq

    dictionaries: set[str] = set()
    deltas: dict[str, int] = {}  # the largest stored size, which no text exceeds
    for chunk in chunks:
        path, size = chunk.path_in_schema, chunk.total_uncompressed_size
        if chunk.physical_type != "BYTE_ARRAY":
            continue
        if "DELTA_BYTE_ARRAY" in chunk.encodings:
            deltas[path] = max(size, deltas.get(path, 1))
        elif chunk.has_dictionary_page:
            dictionaries.add(path)
    coded = sorted(dictionaries - deltas.keys())
    total = 0
    with pq.ParquetFile(file, read_dictionary=coded) as reader:
        for batch in reader.iter_batches(columns=coded) if coded else ():
            total += sum(_count_bytes(column) for column in batch.columns)
        for path, size in deltas.items():
            rows = min(max(BATCH_BYTES // size, 1), 1 << 16)
            for batch in reader.iter_batches(batch_size=rows, columns=[path]):
                total += batch.nbytes
                check_memory(total, f"{file}: the text", SHORT_TEXTS)
    return total


def _count_bytes(array: Any) -> int:
    """Return the size of the texts of an array of dictionaries, or of lists or structs of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(array.type):
        return sum(_count_bytes(part) for part in array.flatten())
    if pa.types.is_nested(array.type):
        return _count_bytes(array.flatten())
    kind = array.type.value_type
    if not (is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return 0
    sizes = pc.binary_length(array.dictionary.cast(pa.large_binary())).take(array.indices)
    return pc.sum(sizes).as_py() or 0


def check_texts(column: pa.ChunkedArray[Any], name: str, where: Path | str) -> None:
    """Reject a column of categories whose texts would take too much memory as single texts."""
    import pyarrow as pa

    if isinstance(column.type, pa.DictionaryType):
        size = sum(_count_bytes(chunk) for chunk in column.chunks)
        check_memory(size, f"{where}: column {name!r}", SHORT_TEXTS)


def _read_csv(file: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    check_memory(CSV_GROWTH * file.stat().st_size, str(file), FEWER_ROWS)
    check_columns(_count_csv_columns(file), file)
    # One block, so that types are inferred from all rows, not only from the first megabyte.
    block = min(max(file.stat().st_size, 1 << 16), 2**31 - 1)
    # Text may be missing as well; a class that is really called NA must be quoted.
    convert = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    try:
        return csv.read_csv(
            file, read_options=csv.ReadOptions(block_size=block), convert_options=convert
        )
    except pa.ArrowInvalid:
        _check_row_lengths(file, block)
        raise


def _check_row_lengths(file: Path, block: int) -> None:
    """Reject a CSV file whose rows have more or fewer values than its first line."""
    import pyarrow as pa
    from pyarrow import csv

    broken: list[csv.InvalidRow] = []

    def record_row(row: csv.InvalidRow) -> Literal["error"]:
        broken.append(row)
        return "error"

    # Without threads, rows have numbers; the header has number 1. All bytes are valid Latin-1, and
    # only the values are counted.
    with suppress(pa.ArrowInvalid):
        csv.read_csv(
            file,
            read_options=csv.ReadOptions(block_size=block, use_threads=False, encoding="latin1"),
            parse_options=csv.ParseOptions(invalid_row_handler=record_row),
        )
    if broken and (number := broken[0].number) is not None:
        found, expected = broken[0].actual_columns, broken[0].expected_columns
        raise DataError(
            f"{file}: row {number - 1} has {found} value{'s' * (found != 1)}, expected {expected} "
            f"as in the first line. Correct or remove the row; a text with "
            "a comma must be quoted. Nothing was loaded."
        )


def _count_csv_columns(file: Path) -> int:
    """Count the columns of the first line, up to one more than the limit."""
    with file.open("rb") as opened:
        begin = opened.read(MAX_HEADER_BYTES)
    start = begin.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    count, found = 1, CSV_VALUE.match(start)
    while found and found[1] and count <= MAX_COLUMNS:
        count, found = count + 1, CSV_VALUE.match(start, found.end())
    is_cut = len(begin) == MAX_HEADER_BYTES and found is not None and found.end() == len(start)
    if count <= MAX_COLUMNS and is_cut:
        raise DataError(
            f"{file}: its first line is longer than {format_bytes(MAX_HEADER_BYTES)}. Is it a CSV "
            "file? Nothing was loaded."
        )
    return count


def read_rows(file: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """All rows of a CSV file as text; `columns` are the expected columns of files without a header.

    A quoted value may contain commas and line breaks; two quotes in it mean one.
    """
    import pyarrow as pa
    from pyarrow import csv

    check_memory(CSV_GROWTH * file.stat().st_size, str(file), FEWER_ROWS)
    block = min(max(file.stat().st_size, 1 << 16), 2**31 - 1)
    types = pa.schema([(name, pa.string()) for name in columns])
    try:
        table = csv.read_csv(
            file,
            read_options=csv.ReadOptions(column_names=list(columns), block_size=block),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        )
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file}: expected a CSV file with the columns {', '.join(columns)} ({reason}). "
            "Nothing was loaded."
        ) from error
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def to_arrow(rows: object) -> pa.Table | None:
    """Return a table (pandas, Polars, Arrow, or a mapping of names to columns) as an Arrow table.

    None: the object is not a table. The index of a pandas frame is not used.

    >>> to_arrow({"a": [1, 2]}).num_rows, to_arrow([[1, 2]]) is None
    (2, True)
    """
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    try:
        if isinstance(rows, Mapping):
            return pa.table(dict(rows))
        if type(rows).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(rows, preserve_index=False)
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{type(rows).__name__}: expected a table with columns of one type each ({reason}). "
            "Convert the columns to numbers or texts first."
        ) from error
    return None


def is_numeric(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )


def read_column(table: pa.Table, name: str, file: Path | str) -> pa.ChunkedArray[Any]:
    """A column without dictionary encoding and without missing values."""
    import pyarrow as pa

    column = table.column(name)
    if isinstance(column.type, pa.DictionaryType):
        check_texts(column, name, file)
        column = column.cast(column.type.value_type)
    if column.null_count:
        row, others = int(np.argmax(column.is_null().to_numpy())), column.null_count - 1
        also = f" (and in {others} other row{'s' * (others > 1)})" if others else ""
        raise DataError(
            f"{file}: row {row + 1}, column {name!r} is missing{also}; expected a value in every "
            f"row. Fill in a value or drop the row. {format_setting('data.missing', 'fill')} or "
            f"{format_setting('data.missing', 'drop')} does it for features, but not for labels, "
            "clients and times."
        )
    return column


def read_numbers(table: pa.Table, name: str, file: Path | str) -> Floats:
    """A column as float64 with finite values."""
    import pyarrow as pa

    column = read_column(table, name, file)
    if not is_numeric(column.type):
        raise DataError(
            f"{file}: column {name!r} is {column.type}, "
            f"for example {_find_text(column)}; expected numbers. Correct such rows, or leave the "
            "column out."
        )
    values = column.cast(pa.float64(), safe=False).to_numpy()
    if (at := find_unusable(values)) is not None:
        raise DataError(
            f"{file}: row {at[0] + 1}, column {name!r} is {values[at]}; "
            "expected a finite number that fits in 32 bits."
        )
    return np.asarray(values, dtype=np.float64)


def _find_text(column: pa.ChunkedArray[Any]) -> str:
    """The first value that is not a number, with its row."""
    for row, value in enumerate(column.to_pylist()):
        try:
            float(str(value))
        except ValueError:
            return f"{str(value)!r} in row {row + 1}"
    return f"{str(column[0])!r} in row 1"


def text_to_numbers(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any] | None:
    """Return a column of texts as float64 if all of its values are numbers; None: they are not.

    Codes with leading zeros, such as 01067, are not numbers. A column of categories (a dictionary)
    is not converted. Missing values remain missing.

    >>> import pyarrow as pa
    >>> text_to_numbers(pa.chunked_array([["1.5", None, " -2e3 "]])).to_pylist()
    [1.5, None, -2000.0]
    >>> [text_to_numbers(pa.chunked_array([values])) for values in (["1", "?"], ["01", "12"])]
    [None, None]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_text(column.type) or column.null_count == len(column):
        return None
    texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
    if not pc.all(pc.match_substring_regex(texts, NUMBER)).as_py():
        return None
    return texts.cast(pa.float64())


def read_codes(table: pa.Table, name: str, file: Path | str) -> tuple[Ints, tuple[str, ...]]:
    """Codes 0, 1, ... of the distinct values in sorted order, and the values as text."""
    import pyarrow as pa

    column = read_column(table, name, file)
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = read_numbers(table, name, file)
        fractional = values != np.floor(values)
        if fractional.any():
            row = int(np.argmax(fractional))
            raise DataError(
                f"{file}: row {row + 1}, column {name!r} is {values[row]}; expected classes or "
                "clients, whole numbers or text, not a quantity."
            )
        column = pa.chunked_array([values.astype(np.int64)])
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)):
        raise DataError(f"{file}: column {name!r} is {kind}; expected whole numbers or text.")
    packed = column.combine_chunks().dictionary_encode()
    distinct: list[Any] = packed.dictionary.to_pylist()
    order = sorted(range(len(distinct)), key=distinct.__getitem__)
    rank = np.empty(len(distinct), dtype=np.int64)
    rank[order] = np.arange(len(distinct))
    coded = rank[packed.indices.to_numpy()]
    if "" in distinct:
        row = int(np.argmax(coded == rank[distinct.index("")]))
        raise DataError(f"{file}: row {row + 1}, column {name!r} is empty; expected a value.")
    return coded, tuple(str(distinct[i]) for i in order)


def read_names(table: pa.Table, name: str, file: Path | str) -> list[str]:
    """A column of classes or clients as texts, as in `Dataset.class_names`; 1.0 is '1'."""
    values = read_column(table, name, file).to_pylist()
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    return [str(value) for value in whole]


def is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def read_texts(table: pa.Table, name: str, file: Path | str) -> list[str]:
    """A column of text."""
    column = read_column(table, name, file)
    if not is_text(column.type):
        raise DataError(f"{file}: column {name!r} is {column.type}; expected text.")
    return [str(value) for value in column.to_pylist()]


def read_seconds(table: pa.Table, name: str, file: Path | str) -> Floats:
    """A column of times as float64: seconds since 1970, or numbers as they are.

    Texts are ISO 8601 (`parse_times`).
    """
    import pyarrow as pa

    column = read_column(table, name, file)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    if isinstance(column.type, pa.TimestampType):
        ticks = column.cast(pa.int64()).to_numpy()
        return np.asarray(ticks / TICKS_PER_SECOND[column.type.unit], dtype=np.float64)
    if not is_numeric(column.type):
        return parse_times(column.to_pylist(), f"{file}: column {name!r}", first_row=1)
    return read_numbers(table, name, file)
