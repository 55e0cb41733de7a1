from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import tabular_stream
from thalweg.data.tabular_stream import (
    assign_rows,
    find_file,
    read_checked_table,
    read_labels,
    standardise_online,
)


def scale_online(*values: float) -> list[float]:
    x = np.array(values)[:, None]
    return standardise_online(x, np.zeros(len(x), dtype=np.int64)).ravel().tolist()


def save_table(file: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), file)
    return file


def test_assigned_client_sizes_differ_by_at_most_one_row() -> None:
    assert np.bincount(assign_rows(11, 3, "contiguous")).tolist() == [4, 4, 3]
    assert np.bincount(assign_rows(11, 3, "interleaved")).tolist() == [4, 4, 3]
    assert (np.diff(assign_rows(11, 3, "contiguous")) >= 0).all()


def test_more_clients_than_rows_are_rejected() -> None:
    with pytest.raises(ConfigError, match="2 rows cannot be divided among 3 clients"):
        assign_rows(2, 3, "interleaved")


def test_online_scale_uses_all_rows_so_far() -> None:
    # 2, 4: mean 3, deviation 1. 2, 4, 9: mean 5, deviation sqrt(26 / 3).
    np.testing.assert_allclose(scale_online(2, 4, 9), [0, 1, 4 / np.sqrt(26 / 3)], rtol=1e-6)


def test_every_client_has_its_own_online_scale() -> None:
    x = np.array([[1.0], [1000.0], [3.0], [2000.0]])
    together = standardise_online(x, np.array([0, 1, 0, 1])).ravel().tolist()
    assert together == [*scale_online(1, 3)[:1], *scale_online(1000, 2000)[:1], 1.0, 1.0]


def test_constant_column_is_scaled_to_zero() -> None:
    assert scale_online(*[0.1] * 1000) == [0.0] * 1000
    assert scale_online(*[1e9 + 0.1] * 1000) == [0.0] * 1000


def test_first_change_after_constant_values_is_clipped() -> None:
    # The first to move after n equal ones is sqrt(n) deviations from the mean.
    assert scale_online(*[7.0] * 16, 8.0)[-1] == pytest.approx(4.0)
    assert scale_online(*[7.0] * 100, 8.0)[-1] == tabular_stream.MAX_DEVIATION
    assert scale_online(*[7.0] * 100, 6.0)[-1] == -tabular_stream.MAX_DEVIATION


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30),
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5),
)
def test_later_values_do_not_change_earlier_scaled_values(
    past: list[float], future: list[float]
) -> None:
    assert scale_online(*past, *future)[: len(past)] == scale_online(*past)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
def test_scaled_values_are_finite_and_bounded(values: list[float]) -> None:
    assert (
        max(map(abs, scale_online(*values))) <= tabular_stream.MAX_DEVIATION
    )  # nan compares false


def test_missing_column_is_named_with_the_existing_columns(tmp_path: Path) -> None:
    file = save_table(tmp_path / "a.parquet", one=[1], other=[2])
    with pytest.raises(
        DataError, match=r"there is no column two, three; expected one, .*got one, other"
    ):
        read_checked_table(file, ["one", "two", "three"])


def test_duplicate_column_is_rejected(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["one", "one"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="more than one column one"):
        read_checked_table(tmp_path / "a.parquet", ["one"])


def test_file_without_rows_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected rows, got none"):
        read_checked_table(
            save_table(tmp_path / "a.parquet", one=pa.array([], pa.int64())), ["one"]
        )
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match="not a readable csv file"):
        read_checked_table(tmp_path / "empty.csv", ["one"])


def test_text_labels_ignore_case(tmp_path: Path) -> None:
    file = save_table(tmp_path / "a.parquet", y=["UP", "down", "Up"])
    labels = read_labels(read_checked_table(file, ["y"]), "y", file, {"down": 0, "up": 1})
    assert labels.tolist() == [1, 0, 1]


def test_unknown_label_is_named_with_its_row(tmp_path: Path) -> None:
    file = save_table(tmp_path / "a.parquet", y=["up", "down", "sideways"])
    with pytest.raises(
        DataError, match="row 3, column 'y' is 'sideways'; expected one of down, up"
    ):
        read_labels(read_checked_table(file, ["y"]), "y", file, {"down": 0, "up": 1})


def test_find_file_returns_the_first_existing_name(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("b.csv", "mine/a.csv"):
        (tmp_path / name).write_text("x\n1\n")
    assert find_file("It", ["a.csv", "b.csv"], ["mine"], tmp_path, "ask") == tmp_path / "mine/a.csv"
    (tmp_path / "mine/a.csv").unlink()
    assert find_file("It", ["a.csv", "b.csv"], ["mine"], tmp_path, "ask") == tmp_path / "b.csv"
    (tmp_path / "b.csv").unlink()
    with pytest.raises(DataError, match=r"It is not on this machine(.|\n)*ask(.|\n)*Looked in"):
        find_file("It", ["a.csv", "b.csv"], ["mine"], tmp_path, "ask")
