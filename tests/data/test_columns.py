"""Tests of single table columns; test_table.py tests whole tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from thalweg.core.errors import DataError
from thalweg.data.columns import read_codes, read_numbers, read_texts

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
