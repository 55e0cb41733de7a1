from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from network.edge.doubles import batch
from thalweg.core.errors import BadMessage, ConfigError
from thalweg.data import Dataset, Digits, Table
from thalweg.data.tabular_stream import make_stream_dataset
from thalweg.network.edge.schema import (
    DataSchema,
    describe_dataset,
    schema_from_json,
    schema_to_json,
)
from thalweg.network.edge.sources import open_live_source
from thalweg.network.sources import LiveBatch, SampleFormat
from thalweg.network.sources.records import parse_sample

IMAGES = DataSchema((8, 8, 1), "uint8", 10, mean=(0.1,), std=(0.3,))
TABLE = DataSchema((2,), "float32", 2, columns=("a", "b"), centre=(1.0, -2.0), width=(0.1, 4.0))
CODES = DataSchema((4,), "uint8", 5, num_codes=5)


def test_schema_of_a_data_set_round_trips_without_samples() -> None:
    data = Digits().load(None, 0)
    schema = schema_from_json(schema_to_json(describe_dataset(data)))
    assert schema == describe_dataset(data)
    mine = schema.make_dataset(data.x[:3], data.y[:3])
    assert isinstance(mine, Dataset)
    assert (mine.input_shape, mine.mean, mine.std) == (data.input_shape, data.mean, data.std)
    assert mine.class_names == data.class_names
    assert schema.sample_format.shape == (8, 8, 1)


@pytest.mark.parametrize(
    "schema", [IMAGES, CODES, TABLE, DataSchema((3,), "float32", 2, class_names=("a", "b"))]
)
def test_schema_round_trips_through_json(schema: DataSchema) -> None:
    assert schema_from_json(schema_to_json(schema)) == schema


@pytest.mark.parametrize(
    "changes",
    [
        {"shape": []},
        {"shape": [0]},
        {"shape": [2.0]},
        {"shape": [1 << 40]},
        {"shape": [1 << 20, 1 << 20, 1]},
        {"dtype": "object"},
        {"num_classes": -1},
        {"target_shape": [2]},
        {"target_shape": 2},
        {"num_classes": True},
        {"mean": [float("nan")]},
        {"std": [0.0]},
        {"mean": []},
        {"class_names": ["one"]},
        {"num_codes": -1},
    ],
)
def test_invalid_schemas_are_rejected(changes: dict[str, object]) -> None:
    text = json.dumps({**json.loads(schema_to_json(IMAGES)), **changes})
    with pytest.raises(BadMessage, match="is not a valid data schema"):
        schema_from_json(text)


@given(st.recursive(st.none() | st.text() | st.integers() | st.floats(), st.lists))
def test_arbitrary_text_is_rejected_as_a_schema(plain: object) -> None:
    for text in (json.dumps(plain), json.dumps({"shape": plain}), str(plain)):
        with pytest.raises(BadMessage):
            schema_from_json(text)


def test_codes_out_of_range_are_invalid() -> None:
    inputs = np.array([[0, 1, 2, 4], [0, 1, 2, 5]], dtype=np.uint8)
    both = LiveBatch(inputs, np.zeros(2, dtype=np.int64), np.zeros(2), ("", ""), "")
    assert CODES.find_valid(both).tolist() == [0]
    assert CODES.find_valid(batch([1])).tolist() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": ["a"]},
        {"centre": [1.0]},
        {"centre": []},
        {"width": [1.0, 0.0]},
        {"width": [1.0, float("nan")]},
        {"centre": [float("inf"), 0.0]},
    ],
)
def test_invalid_scales_are_rejected(changes: dict[str, object]) -> None:
    text = json.dumps({**json.loads(schema_to_json(TABLE)), **changes})
    with pytest.raises(BadMessage, match="is not a valid data schema"):
        schema_from_json(text)


def test_device_readings_use_the_scale_of_the_server_table(tmp_path: Path) -> None:
    """Rows read from the server's file and by a device give bit-identical numbers."""
    rows = [(20.0 + 3 * n, 1e6 + 7 * n * n, "yes" if n % 3 else "no") for n in range(20)]
    lines = [f"{vibration},{label},{heat}\n" for heat, vibration, label in rows]
    (tmp_path / "server.csv").write_text("vibration,label,heat\n" + "".join(lines))
    data = Table(str(tmp_path / "server.csv")).load(None, 0)
    sample_format = schema_from_json(schema_to_json(describe_dataset(data))).sample_format
    sent = [
        {"x": {"heat": heat, "vibration": vibration}, "y": label} for heat, vibration, label in rows
    ]
    stored = {parse_sample(each["x"], sample_format).tobytes() for each in sent}
    assert {row.tobytes() for row in np.concatenate([data.x, data.x_test])} == stored


def test_replayed_table_sends_unscaled_values(tmp_path: Path) -> None:
    lines = [f"{10 * n + 5},{'ab'[n % 2]}\n" for n in range(20)]
    (tmp_path / "mine.csv").write_text("volts,label\n" + "".join(lines))
    sample_format = SampleFormat((1,), "float32", 2)
    source = open_live_source(f"replay:{tmp_path / 'mine.csv'}?clients=1", sample_format)
    sent = [x for event in source.events("") if isinstance(event, LiveBatch) for x in event.inputs]
    volts = {round(float(x[0]), 3) for x in sent}
    assert volts < {10 * n + 5 for n in range(20)}, "the training part, again and again"
    assert len(volts) == 16


def test_data_with_online_standardisation_cannot_be_served_to_devices() -> None:
    data = make_stream_dataset(
        "elec2",
        np.arange(6.0).reshape(3, 2),
        np.array([0, 1, 0]),
        np.zeros(3, dtype=np.int64),
        np.arange(3.0),
        standardise=True,
        class_names=("down", "up"),
    )
    with pytest.raises(ConfigError, match=r"serve it with --set data\.standardise=false"):
        describe_dataset(data)


NUMBERS = DataSchema((2,), "float32", 0, target_shape=(2,))


def test_schema_of_a_regression_is_that_of_its_data_set() -> None:
    x, y = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)
    data = Dataset("numbers", x, y, x[:0], y[:0], num_classes=0)
    assert describe_dataset(data) == NUMBERS
    assert schema_from_json(schema_to_json(NUMBERS)) == NUMBERS
    made = NUMBERS.make_dataset(x, y)
    assert (made.task, made.num_outputs) == ("regression", 2)


@pytest.mark.parametrize(
    "change",
    [
        {"target_shape": [0]},
        {"target_shape": [1, 1]},
        {"target_shape": [2.0]},
        {"num_codes": -1},
    ],
)
def test_invalid_schemas_of_a_regression_are_rejected(change: dict[str, object]) -> None:
    text = json.dumps({**json.loads(schema_to_json(NUMBERS)), **change})
    with pytest.raises(BadMessage, match="is not a valid data schema"):
        schema_from_json(text)


def test_numbers_are_valid_if_finite_and_pending_only_with_a_name() -> None:
    labels = np.array([[1, 2], [np.nan, 2], [np.inf, 0], [np.nan] * 2, [np.nan] * 2], np.float32)
    keys = ("", "b", "c", "d", "")
    samples = LiveBatch(np.zeros((5, 2), np.float32), labels, np.zeros(5), keys, "")
    assert NUMBERS.find_valid(samples).tolist() == [0, 3]
    assert NUMBERS.find_valid_targets(labels).tolist() == [True, False, False, False, False]
    for wrong in (labels[:, :1], labels.astype(np.float64), np.zeros(5, np.int64)):
        assert not len(NUMBERS.find_valid(samples._replace(labels=wrong)))
