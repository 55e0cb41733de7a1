from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import Dataset, Table

ROWS = 10
COLUMNS: dict[str, Any] = {
    "age": [float(i) for i in range(ROWS)],
    "height": [i * i for i in range(ROWS)],
    "town": ["Ulm", "Bonn"] * 5,
    "label": ["yes", "no", "no", "yes", "no"] * 2,
}


def load(folder: Path, *, columns: dict[str, Any] | None = None, **options: Any) -> Dataset:
    pq.write_table(pa.table(COLUMNS | (columns or {})), folder / "people.parquet")
    return Table("people.parquet", **options).load(folder, seed=0)


def load_csv(folder: Path, text: str, **options: Any) -> Dataset:
    (folder / "people.csv").write_text(text)
    return Table("people.csv", **options).load(folder, seed=0)


def test_all_other_columns_are_features_by_default(tmp_path: Path) -> None:
    data = load(tmp_path, standardise=False)
    assert data.columns == ("age", "height", "town=Bonn", "town=Ulm")
    both = np.concatenate([data.x, data.x_test])
    expected = [[i, i * i, i % 2, 1 - i % 2] for i in range(ROWS)]  # Ulm, Bonn, Ulm, ...
    assert both[np.argsort(both[:, 0])].tolist() == expected
    assert load(tmp_path, drop=("town",)).columns == ("age", "height")
    assert load(tmp_path, features=("height",)).x.shape == (8, 1)
    assert (data.name, data.client, data.time) == ("people", None, None)


def test_table_labels_and_clients_are_numbered_in_sorted_order(tmp_path: Path) -> None:
    data = load(tmp_path, client="town")
    assert data.class_names == ("no", "yes")
    assert data.client_names == ("Bonn", "Ulm")
    assert data.client is not None
    assert set(data.client) == {0, 1}
    plain = load(tmp_path, client="town", standardise=False)
    # Ages are the numbers of the rows, and the towns take turns: Ulm, Bonn, Ulm, ...
    assert data.client_test is not None
    assert data.client_test.tolist() == [1 - int(age) % 2 for age in plain.x_test[:, 0]]
    assert load(tmp_path).client_test is None


def test_table_features_are_standardised_by_the_training_part(tmp_path: Path) -> None:
    data = load(tmp_path)
    np.testing.assert_allclose(data.x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(data.x.std(axis=0), 1, atol=1e-6)


def test_time_column_puts_the_end_of_each_history_in_the_test_part(tmp_path: Path) -> None:
    start = datetime.datetime(2026, 3, 1)
    when = [start + datetime.timedelta(hours=ROWS - i) for i in range(ROWS)]  # backwards
    data = load(tmp_path, columns={"when": when}, time="when", client="town", standardise=False)
    assert data.x_test[:, 0].tolist() == [0.0, 1.0]  # the last hour of Ulm and of Bonn
    assert data.x[:, 0].tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]  # order of the file
    assert data.time is not None
    np.testing.assert_allclose(np.diff(data.time), -3600)
    assert data.time[-1] == datetime.datetime(2026, 3, 1, 1, tzinfo=datetime.UTC).timestamp()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_become_seconds(tmp_path: Path, unit: str) -> None:
    when = pa.array([i * 1000 for i in range(ROWS)], pa.timestamp("ms")).cast(pa.timestamp(unit))
    data = load(tmp_path, columns={"when": when}, time="when")
    assert data.time is not None
    assert data.time.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


def test_dates_and_numbers_are_accepted_as_times(tmp_path: Path) -> None:
    days = [datetime.date(1970, 1, 1 + i) for i in range(ROWS)]
    dated = load(tmp_path, columns={"when": days}, time="when")
    assert dated.time is not None
    assert dated.time[:2].tolist() == [0.0, 86_400.0]
    counted = load(tmp_path, time="age")
    assert counted.time is not None
    assert counted.time[:3].tolist() == [0.0, 1.0, 2.0]


def test_table_split_does_not_depend_on_the_seed(tmp_path: Path) -> None:
    load(tmp_path)
    one, two = (Table("people.parquet").load(tmp_path, seed) for seed in (1, 2))
    np.testing.assert_array_equal(one.x_test, two.x_test)


@pytest.mark.parametrize(
    "labels, names",
    [
        ([3, 7] * 5, ("3", "7")),
        ([10.0, 9.0] * 5, ("9", "10")),
        ([True, False] * 5, ("False", "True")),
        (pa.array(["b", "a"] * 5).dictionary_encode(), ("a", "b")),
        (pa.array(["b", "a"] * 5, pa.large_string()), ("a", "b")),
        ([decimal.Decimal(2), decimal.Decimal(1)] * 5, ("1", "2")),
    ],
    ids=["integers", "whole floats", "booleans", "packed text", "large text", "decimals"],
)
def test_table_labels_may_be_integers_or_text(tmp_path: Path, labels: Any, names: Any) -> None:
    assert load(tmp_path, columns={"label": labels}).class_names == names


def test_csv_file_gives_the_same_data_as_parquet(tmp_path: Path) -> None:
    lines = [",".join(COLUMNS)]
    lines += [",".join(str(column[i]) for column in COLUMNS.values()) for i in range(ROWS)]
    text, packed = (
        load_csv(tmp_path, "\n".join(lines), client="town"),
        load(tmp_path, client="town"),
    )
    np.testing.assert_array_equal(text.x, packed.x)
    np.testing.assert_array_equal(text.y, packed.y)
    np.testing.assert_array_equal(text.client, packed.client)


def test_csv_column_may_become_fractional_after_many_integers(tmp_path: Path) -> None:
    rows = [f"{i},{i % 2}" for i in range(200_000)] + ["0.5,1"]  # more than a megabyte of integers
    data = load_csv(tmp_path, "a,label\n" + "\n".join(rows), standardise=False)
    assert 0.5 in np.concatenate([data.x, data.x_test])


def test_csv_timestamps_are_recognised(tmp_path: Path) -> None:
    rows = [f"2026-01-0{day} 12:00:00,{day},{'ab'[day % 2]}" for day in range(1, 6)]
    data = load_csv(tmp_path, "when,a,label\n" + "\n".join(rows), time="when")
    assert data.time is not None
    np.testing.assert_allclose(np.diff(data.time), 86_400)


@pytest.mark.parametrize(
    "options, suggestion",
    [
        ({"label": "lable"}, "unknown label column in .*people.parquet: 'lable'; .*mean 'label'"),
        ({"client": "twon"}, "unknown client column .*mean 'town'"),
        ({"time": "ago"}, "unknown time column .*mean 'age'"),
        ({"features": ("age", "heigth")}, "unknown feature column .*mean 'height'"),
    ],
)
def test_misspelt_column_gets_a_suggestion(tmp_path: Path, options: Any, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=suggestion):
        load(tmp_path, **options)


def with_value_in_row(value: Any, row: int = 4) -> list[Any]:
    """Ten ordinary numbers, except in one row."""
    return [value if i == row else float(i) for i in range(ROWS)]


@pytest.mark.parametrize(
    "columns, options, message",
    [
        ({"age": with_value_in_row(None)}, {}, "row 5, column 'age' is missing"),
        (
            {"age": with_value_in_row(float("nan"))},
            {},
            "row 5, column 'age' is nan; expected a finite number",
        ),
        ({"age": with_value_in_row(float("-inf"))}, {}, "row 5, column 'age' is -inf"),
        ({"age": with_value_in_row(1e39)}, {}, r"row 5, column 'age' is 1e\+39"),
        ({"label": ["a", None] * 5}, {}, "row 2, column 'label' is missing"),
        ({"label": ["a", "b", ""] + ["a"] * 7}, {}, "row 3, column 'label' is empty"),
        ({"label": ["a"] * ROWS}, {}, "column 'label' is 'a' in every row; expected at least two"),
        (
            {"label": with_value_in_row(0.5)},
            {"task": "classification"},
            "row 5, column 'label' is 0.5; expected classes or clients",
        ),
        (
            {"label": [b"a", b"b"] * 5},
            {},
            "column 'label' is binary; expected whole numbers or text",
        ),
        ({"town": [None] * ROWS}, {}, "column 'town' has no values at all"),
        ({"town": ["a"] * 9 + [None]}, {"client": "town"}, "row 10, column 'town' is missing"),
        (
            {"town": [datetime.date(2026, 1, 1)] * ROWS},
            {},
            r"column 'town' holds times .*; .* Name it as the time .* \(data={'time': 'town'}\)",
        ),
        ({"town": [[1]] * ROWS}, {}, r"column 'town' is list.*Drop it \(data={'drop': \['town'\]}"),
        ({}, {"time": "town"}, "column 'town', row 1 is .*; expected ISO 8601"),
        ({"age": with_value_in_row(None)}, {"time": "age"}, "row 5, column 'age' is missing"),
        ({name: [] for name in COLUMNS}, {"features": ("age",)}, "expected rows, got none"),
        ({}, {"test_fraction": 0.01}, "a test part of 0.01 of every class is empty with 10 rows"),
    ],
)
def test_unusable_table_values_are_named(
    tmp_path: Path, columns: Any, options: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path, columns=columns, **options)
    assert "people.parquet" in str(caught.value)


def test_missing_values_in_unused_columns_are_ignored(tmp_path: Path) -> None:
    data = load(tmp_path, columns={"age": with_value_in_row(None)}, features=("height",))
    assert data.x.shape == (8, 1)


def test_table_without_feature_columns_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no feature column .* its columns are town, label"):
        load_csv(tmp_path, "town,label\nUlm,1\nBonn,0\n", client="town")


def test_message_about_a_wide_table_lists_some_columns(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(3_000)]
    wide = f"{','.join(names)}\n{','.join('1' for _ in names)}\n"
    with pytest.raises(ConfigError, match=r"columns are c0, c1, .*, c19 and 2,980 more\.") as error:
        load_csv(tmp_path, wide)
    assert len(str(error.value)) < 500 + len(str(tmp_path))
    with pytest.raises(ConfigError, match=r"c0, c1, c10, .* and 2,980 more\.") as error:
        load_csv(tmp_path, wide, label="temperature")
    assert len(str(error.value)) < 500 + len(str(tmp_path))


def test_text_column_with_many_values_is_rejected(tmp_path: Path) -> None:
    rows = "\n".join(f"name{i},{i},{i % 2}" for i in range(60))
    with pytest.raises(DataError, match="'name' has 60 different texts; expected at most 50"):
        load_csv(tmp_path, f"name,a,label\n{rows}")
    assert load_csv(tmp_path, f"name,a,label\n{rows}", drop=("name",)).columns == ("a",)


def test_duplicate_column_names_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="2 columns have the name 'a'"):
        load_csv(tmp_path, "a,a,label\n1,2,x\n3,4,y\n")


@pytest.mark.parametrize("cell", ["", "NA", "nan"])
def test_missing_csv_text_is_rejected(tmp_path: Path, cell: str) -> None:
    with pytest.raises(DataError, match="row 2, column 'label' is missing"):
        load_csv(tmp_path, f"a,label\n1,x\n2,{cell}\n3,y\n")


def test_quoted_na_is_a_class_name(tmp_path: Path) -> None:
    rows = '1,"NA"\n2,"x"\n' * 5
    assert load_csv(tmp_path, "a,label\n" + rows).class_names == ("NA", "x")


@pytest.mark.parametrize(
    "text", ["", "a,label\n1,x\n2\n", "a,label\n1,x,3\n", '"a'], ids=["empty", "short", "long", "?"]
)
def test_malformed_csv_file_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises((DataError, ConfigError), match=r"people\.csv"):
        load_csv(tmp_path, text)


@pytest.mark.parametrize("row, found", [("2", 1), ("2,y,3", 3)])
def test_row_with_another_number_of_values_is_named(tmp_path: Path, row: str, found: int) -> None:
    expected = f"people.csv: row 2 has {found} values?, expected 2 as in the first line"
    with pytest.raises(DataError, match=expected):
        load_csv(tmp_path, f"a,label\n1,x\n{row}\n3,x\n")


@pytest.mark.parametrize("more, also", [("", ""), ("4,\n", r" \(and in 1 other row\)")])
def test_missing_labels_are_counted_and_named(tmp_path: Path, more: str, also: str) -> None:
    expected = f"row 2, column 'label' is missing{also}; expected .*but not for labels"
    with pytest.raises(DataError, match=expected):
        load_csv(tmp_path, f"a,label\n1,x\n2,\n3,y\n{more}")


def test_csv_header_in_another_encoding_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_bytes("größe,label\n1,a\n2,b\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"people\.csv is not a readable csv file"):
        Table("people.csv").load(tmp_path, seed=0)


def test_parquet_checksums_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "people.parquet"
    columns = pa.table({"a": [float(i) for i in range(ROWS)], "label": [0, 1] * 5})
    options = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(columns, path, **options)
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(7.0).tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"people\.parquet is not a readable parquet file"):
        Table("people.parquet").load(tmp_path, seed=0)


@settings(deadline=None)
@given(st.data())
def test_truncated_parquet_file_is_rejected(tmp_path_factory: Any, data: Any) -> None:
    folder = tmp_path_factory.getbasetemp()
    whole = folder / "whole.parquet"
    pq.write_table(pa.table(COLUMNS), whole)
    content = whole.read_bytes()
    length = data.draw(st.integers(0, len(content) - 1))
    (folder / "cut.parquet").write_bytes(content[:length])
    with pytest.raises(DataError, match=r"cut.parquet is not a readable parquet file"):
        Table("cut.parquet").load(folder, seed=0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"path": "people.xlsx"}, "ending in .parquet or .csv, got 'people.xlsx'"),
        ({"test_fraction": 1.0}, r"test_fraction must lie in \(0, 1\), got 1.0"),
        ({"client": "label"}, "label, client and time must be different columns"),
        ({"features": ()}, "features must name at least one column"),
        ({"features": ("a", "a")}, "features names a column twice: a, a"),
        ({"features": ("a", "label")}, "must not contain a label or dropped column, got .'label'."),
    ],
)
def test_invalid_table_options_are_rejected(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Table(**({"path": "people.csv"} | options))


def test_fractional_label_column_is_a_regression(tmp_path: Path) -> None:
    data = load(tmp_path, columns={"label": [i / 4 for i in range(ROWS)]}, client="town")
    assert (data.task, data.num_outputs, data.class_names) == ("regression", 1, ())
    assert sorted([*data.y, *data.y_test]) == [i / 4 for i in range(ROWS)]
    assert load(tmp_path, label="height", task="regression").task == "regression"


def test_invalid_regression_targets_are_reported_with_their_row(tmp_path: Path) -> None:
    targets = [0.5] * 4 + [float("nan")] + [0.5] * 5
    with pytest.raises(DataError, match="row 5, column 'label' is nan"):
        load(tmp_path, columns={"label": targets})
    with pytest.raises(DataError, match=r"column 'label' is string, .* expected numbers"):
        load(tmp_path, task="regression")


def test_several_label_columns_are_the_outputs_of_a_regression(tmp_path: Path) -> None:
    data = load(tmp_path, label=("age", "height"), features=("size",), columns={"size": [1.5] * 10})
    assert (data.task, data.num_outputs, data.y.shape) == ("regression", 2, (8, 2))
    assert all(height == age**2 for age, height in data.y.tolist())
    assert Table("people.csv", label="age, height").label == ("age", "height")
    plain = load(
        tmp_path, label="age,height", drop=("town", "label"), columns={"size": [0.5, 1.5] * 5}
    )
    assert plain.columns == ("size",)


def test_invalid_label_columns_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs one label column, got 2: a, b"):
        Table("people.csv", label="a,b", task="classification")
    with pytest.raises(ConfigError, match="must be different columns, got a, a"):
        Table("people.csv", label=("a", "a"))
    with pytest.raises(ConfigError, match=r"must not contain a label .*, got .'b'."):
        Table("people.csv", label="a,b", features=("b",))
    with pytest.raises(ConfigError, match=r"unknown label column in .*people.parquet: 'heigth'"):
        load(tmp_path, label="age,heigth")
    broken = "a,b,x\n1.5,2,0\n2.5,high,1\n3.5,4,2\n"
    with pytest.raises(DataError, match=r"column 'b' is string, for example 'high' in row 2"):
        load_csv(tmp_path, broken, label="a,b")
    with pytest.raises(DataError, match=r"row 2, column 'b'"):
        load_csv(tmp_path, broken.replace("high", "nan"), label="a,b")
