"""Tests of single table columns; test_table.py tests whole tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.core.errors import DataError
from thalweg.core.size_limits import MAX_COLUMNS
from thalweg.data import columns
from thalweg.data.columns import read_codes, read_numbers, read_table, read_texts

HERE = Path("here.parquet")


def test_text_columns_are_read_in_every_arrow_encoding() -> None:
    plain = pa.array(["b", "a", "b"])
    for column in (plain, plain.cast(pa.large_string()), plain.dictionary_encode()):
        assert read_texts(pa.table({"name": column}), "name", HERE) == ["b", "a", "b"]


def test_numeric_and_missing_values_are_rejected_as_text() -> None:
    with pytest.raises(DataError, match="column 'name' is int64; expected text"):
        read_texts(pa.table({"name": [1, 2]}), "name", HERE)
    with pytest.raises(DataError, match="row 2, column 'name' is missing"):
        read_texts(pa.table({"name": ["a", None]}), "name", HERE)


def test_distinct_values_are_numbered_in_sorted_order() -> None:
    table = pa.table({"town": ["Ulm", "Bonn", "Ulm"], "size": [3, 1, 2]})
    coded, names = read_codes(table, "town", HERE)
    assert (coded.tolist(), names) == ([1, 0, 1], ("Bonn", "Ulm"))
    assert read_numbers(table, "size", HERE).tolist() == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_table_with_too_many_columns_is_rejected_before_it_is_read(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column takes about 10 kB while it is read, a thousand times its size in a short file."""
    file, names = tmp_path / f"wide{suffix}", [f"c{i}" for i in range(MAX_COLUMNS + 1)]
    if suffix == ".csv":
        file.write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    else:
        pq.write_table(pa.table({name: [1] for name in names}), file)
        monkeypatch.setattr(columns, "_count_text_bytes", None)
    with pytest.raises(DataError, match="20,001 columns or more, at most 20,000 are allowed"):
        read_table(file)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("a,b\n1,2,3\n", 2),
        ("a,b\r\n1,2,3\r\n", 2),
        ("\ufeff\n\na,b", 2),
        ('"a,b",c\n', 2),
        ('"a\nb",c\n', 2),
        ('"a "",b""",c\n', 2),
        ('"a"x,b"c,d\n', 3),
        ('a,"b\n1,2', 2),
        ("," * 3 * MAX_COLUMNS, MAX_COLUMNS + 1),
    ],
)
def test_columns_of_the_first_line_are_counted(text: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(text, newline="")
    assert columns._count_csv_columns(file) == count


def test_endless_first_line_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_HEADER_BYTES", 1000)
    file = tmp_path / "table.csv"
    file.write_text("a,b" * 1000)
    with pytest.raises(DataError, match="its first line is longer than 1 kB"):
        read_table(file)
