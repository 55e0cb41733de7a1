"""Columns by themselves; test_table.py reads whole tables of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from thalweg.core.errors import DataError
from thalweg.data.columns import codes, numbers, texts

HERE = Path("here.parquet")


def test_text_is_read_whatever_its_packing() -> None:
    plain = pa.array(["b", "a", "b"])
    for column in (plain, plain.cast(pa.large_string()), plain.dictionary_encode()):
        assert texts(pa.table({"name": column}), "name", HERE) == ["b", "a", "b"]


def test_numbers_are_no_text_and_gaps_are_errors() -> None:
    with pytest.raises(DataError, match="column 'name' is int64; expected text"):
        texts(pa.table({"name": [1, 2]}), "name", HERE)
    with pytest.raises(DataError, match="row 2, column 'name' is missing"):
        texts(pa.table({"name": ["a", None]}), "name", HERE)


def test_distinct_values_are_counted_in_sorted_order() -> None:
    table = pa.table({"town": ["Ulm", "Bonn", "Ulm"], "size": [3, 1, 2]})
    coded, names = codes(table, "town", HERE)
    assert (coded.tolist(), names) == ([1, 0, 1], ("Bonn", "Ulm"))
    assert numbers(table, "size", HERE).tolist() == [3.0, 1.0, 2.0]
