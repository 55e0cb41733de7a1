from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from thalweg.core.errors import ConfigError, DataError, ThalwegError
from thalweg.data import Dataset
from thalweg.data.own import Rules, read_once

N = 10
COLUMNS: dict[str, Any] = {
    "age": [float(i) for i in range(N)],
    "town": ["Ulm", "Bonn"] * 5,
    "sick": ["yes", "no", "no", "yes", "no"] * 2,
}


def test_arrays_tensors_and_lists_give_the_same_data() -> None:
    x = np.arange(20.0).reshape(N, 2)
    first = Dataset.from_arrays(x, np.array([3, 7] * 5), client=np.array(["b", "a"] * 5))
    second = Dataset.from_arrays(
        torch.from_numpy(x), torch.tensor([3, 7] * 5), client=["b", "a"] * 5
    )
    third = Dataset.from_arrays(x.tolist(), [3, 7] * 5, client=["b", "a"] * 5)
    for other in (second, third):
        np.testing.assert_array_equal(first.x, other.x)
        np.testing.assert_array_equal(first.y, other.y)
        np.testing.assert_array_equal(first.client, other.client)
    assert first.class_names == ("3", "7")  # labels may have gaps


def test_given_test_part_is_used_as_it_is() -> None:
    x, y = np.eye(4), [0, 1, 0, 1]
    data = Dataset.from_arrays(x, y, X_test=x[:1], y_test=[1], standardise=False)
    assert data.x.shape == (4, 4)
    assert data.x_test.tolist() == [[1, 0, 0, 0]]
    assert data.split == "given"


def test_windows_and_images_keep_their_shape() -> None:
    windows = Dataset.from_arrays(np.random.default_rng(0).normal(size=(N, 5, 3)), [0, 1] * 5)
    assert windows.x.shape == (8, 5, 3)
    images = Dataset.from_arrays(np.zeros((N, 4, 4), dtype=np.uint8), [0, 1] * 5)
    assert images.x.shape == (8, 4, 4, 1)


def test_times_with_zones_are_seconds_since_1970() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    zone = timezone(timedelta(hours=5))
    times = [(start + timedelta(hours=i)).astimezone(zone) for i in range(N)]
    data = Dataset.from_arrays(np.eye(N), [0, 1] * 5, time=times)
    assert data.time is not None
    assert data.time[0] == start.timestamp()
    assert data.split == "the last rows"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": [0, 1]}, r"expected y of shape \(10,\), one entry for each row, got \(2,\)"),
        ({"y": [1] * N}, "every y is 1; expected at least two classes"),
        ({"X": np.zeros(N)}, "expected x to be uint8 images"),
        ({"X": np.full((N, 2), np.inf)}, r"x\[0, 0\] is inf; expected a finite number"),
        ({"client": [0.5] * N}, "expected client to be whole numbers or text"),
        ({"time": ["now"] * N}, "time, row 0 is 'now'; expected ISO 8601"),
        ({"X_test": np.zeros((1, 2))}, "expected x_test and y_test together"),
        ({"hold_out": "clients"}, "hold_out=clients needs a client column"),
        ({"hold_out": "time"}, "hold_out=time needs a time column"),
        ({"test_size": 0.3}, "unknown argument 'test_size'"),
        ({"hold_out": "people"}, "hold_out"),
    ],
)
def test_bad_arrays_are_rejected(changes: dict[str, Any], message: str) -> None:
    given = {"X": np.zeros((N, 2)), "y": [0, 1] * 5, **changes}
    with pytest.raises(ThalwegError, match=message):
        Dataset.from_arrays(**given)


def test_held_out_clients_have_no_training_rows() -> None:
    client = np.repeat(["a", "b", "c", "d", "e"], 2)
    x = np.column_stack([np.repeat(np.arange(5), 2), np.zeros(N)])
    data = Dataset.from_arrays(x, [0, 1] * 5, client=client, hold_out="clients", standardise=False)
    (held,) = set(data.x_test[:, 0].tolist())
    assert held not in data.x[:, 0]
    assert len(data.client_names) == 4
    assert data.client_test is None
    assert data.client is not None
    assert data.client_names == tuple(name for name in "abcde" if name != "abcde"[int(held)])
    assert data.client.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_mapping_and_arrow_table_give_the_same_data() -> None:
    first = Dataset.from_frame(COLUMNS, label="sick", client="town")
    second = Dataset.from_frame(pa.table(COLUMNS), label="sick", client="town")
    np.testing.assert_array_equal(first.x, second.x)
    assert (first.columns, first.class_names) == (("age",), ("no", "yes"))
    assert first.target_names == ("sick",)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_are_tables(library: str) -> None:
    frames = pytest.importorskip(library)
    frame = frames.DataFrame(COLUMNS)
    if library == "pandas":
        frame.index = [7] * N  # duplicate indices have no effect
    ours = Dataset.from_frame(frame, label="sick", client="town")
    np.testing.assert_array_equal(
        ours.x, Dataset.from_frame(COLUMNS, label="sick", client="town").x
    )


def test_several_labels_mean_regression_with_several_outputs() -> None:
    columns = {"a": range(N), "b": range(N), "c": [0.5] * N}
    data = Dataset.from_frame(columns, label=["b", "c"])
    assert (data.task, data.num_outputs, data.columns) == ("regression", 2, ("a",))


def test_missing_values_are_rejected_filled_or_dropped() -> None:
    columns = {**COLUMNS, "age": [None, *range(1, N)], "town": ["Ulm", None] * 5}
    with pytest.raises(DataError, match="row 1, column 'age' is missing"):
        Dataset.from_frame(columns, label="sick", drop=["town"])
    with pytest.raises(DataError, match="row 2, column 'town' is missing; expected one of Ulm"):
        Dataset.from_frame(columns, label="sick", drop=["age"])
    filled = Dataset.from_frame(columns, label="sick", missing="fill", standardise=False)
    assert filled.columns == ("age", "town=Ulm", "town=(missing)")
    fill = filled.encoding[0].fill
    known = filled.x[:, 0][filled.x[:, 0] != np.float32(fill)]
    assert fill == pytest.approx(known.mean())  # of the training part alone
    dropped = Dataset.from_frame(
        columns, label="sick", missing="drop", standardise=False, test_fraction=0.4
    )
    assert len(dropped.y) + len(dropped.y_test) == 4  # rows 2, 4, 6 and 8
    assert dropped.columns == ("age", "town=Ulm")


def test_frame_of_another_kind_is_rejected() -> None:
    with pytest.raises(DataError, match=r"got ndarray. Use Dataset.from_arrays"):
        Dataset.from_frame(np.eye(3), label="a")
    with pytest.raises(ConfigError, match="unknown label column in the table: 'ill'"):
        Dataset.from_frame(COLUMNS, label="ill")


def test_client_with_one_sample_is_only_in_the_training_part() -> None:
    owner = ["many"] * 9 + ["one"]
    data = Dataset.from_arrays(np.eye(10), [0, 1] * 5, client=owner, time=np.arange(10)[::-1])
    assert data.client is not None
    assert data.client_test is not None
    assert data.client.tolist().count(data.client_names.index("one")) == 1
    assert data.client_test.tolist() == [0, 0]
    assert data.time is not None
    assert sorted(data.time.tolist()) == [0, 1, 2, 3, 4, 5, 6, 7]  # the latest two are held out


def test_data_set_is_described_in_one_line() -> None:
    data = Dataset.from_frame(COLUMNS, label="sick", client="town", name="mine")
    expected = "Dataset('mine', 8 training and 2 test rows of shape (1,), 2 classes, 2 clients)"
    assert repr(data) == expected


def test_table_without_the_default_label_asks_for_its_name() -> None:
    with pytest.raises(ConfigError, match=r"no column 'label', the default. Name the column to"):
        Dataset.from_frame(COLUMNS, label="label")


def test_last_data_set_is_read_once_for_each_version() -> None:
    seen: list[tuple[float, str]] = []

    def read(source: Rules, origin: str) -> Dataset:
        seen.append((source.test_fraction, origin))
        return Dataset.from_frame(COLUMNS, label="sick")

    first = read_once(read, Rules(), "a", 1)
    assert read_once(read, Rules(), "a", 1) is first
    assert read_once(read, Rules(), "a", 2) is not first  # the file has changed
    read_once(read, Rules(test_fraction=0.5), "a", 2)
    read_once(read, Rules(), "a", 2)  # only the last one is kept
    assert seen == [(0.2, "a"), (0.2, "a"), (0.5, "a"), (0.2, "a")]


def test_pandas_types_follow_the_rules_of_tables() -> None:
    pandas = pytest.importorskip("pandas")
    start = pandas.Timestamp("2026-03-01", tz="Europe/Berlin")
    frame = pandas.DataFrame(
        {
            "count": pandas.array([1, 2] * 5, dtype="Int64"),
            "code": pandas.Categorical(["7", "9"] * 5),  # categories, not numbers
            "dose": [str(i / 2) for i in range(N)],  # numbers in texts
            "at": [start + pandas.Timedelta(hours=i) for i in range(N)],
            "sick": [True, False] * 5,
        },
        index=[0] * N,  # not used
    )
    data = Dataset.from_frame(frame, label="sick", time="at", standardise=False)
    assert data.columns == ("count", "code=7", "code=9", "dose")
    assert data.x[:2].tolist() == [[1.0, 1.0, 0.0, 0.0], [2.0, 0.0, 1.0, 0.5]]
    assert data.time is not None
    assert data.time[0] == start.timestamp()
    assert data.preprocessing.transform(frame)[:8].tolist() == data.x.tolist()
