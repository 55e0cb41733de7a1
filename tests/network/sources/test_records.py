"""Tests of record validation: valid records become samples, others are counted."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.source import PLAIN, flatten_events
from thalweg.network.sources import PENDING_LABEL, LateLabels, LiveBatch, SampleFormat
from thalweg.network.sources.records import (
    BrokenRecord,
    FieldNames,
    InvalidRecord,
    Record,
    RecordValidator,
    parse_sample,
)

IMAGE = SampleFormat((1, 2, 1), "uint8", 2)
NAMED = SampleFormat((2,), "float32", 3, classes=("off", "on", "7"), columns=("a", "b"))


def reason_of(record: Record, sample_format: SampleFormat = PLAIN) -> str:
    validator = RecordValidator(sample_format)
    (event,) = validator.events([record._replace(mark=1)], str)
    assert isinstance(event, LiveBatch)
    assert len(event.labels) == 0
    assert validator.rejected == 1
    return validator.last_rejection


@pytest.mark.parametrize(
    ("x", "why"),
    [
        ([1.0], "expected shape (2,), got (1,)"),
        ([[1.0, 2.0]], "expected shape (2,), got (1, 2)"),
        ([1.0, float("nan")], "finite"),
        ([1.0, float("-inf")], "finite"),
        ([1.0, 1e39], "fit in 32 bits"),
        ([1.0, 10**400], "expected 2 numbers"),
        ([1.0, None], "expected 2 numbers"),
        (["1", "warm"], "expected 2 numbers"),
        ([[1], [2, 3]], "expected 2 numbers"),
        ("1 2", "expected 2 numbers"),
        ({"a": 1, "b": 2}, "the order of its features is unknown"),
        (1j, "expected 2 numbers"),
    ],
)
def test_invalid_inputs_are_rejected_with_a_reason(x: Any, why: str) -> None:
    assert why in reason_of(Record(x, 0))


@pytest.mark.parametrize("y", [3, -1, 1.5, "warm", float("nan"), [1], 10**400])
def test_unknown_labels_are_rejected(y: Any) -> None:
    assert "unknown label" in reason_of(Record([1, 2], y))


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (Record([1, 2]), "no label, and no id"),
        (Record(None, None, None, "k"), "neither a sample nor a late label"),
        (Record([1, 2], 0, "yesterday"), "unix seconds or ISO 8601"),
        (Record([1, 2], 0, float("nan")), "unix seconds or ISO 8601"),
        (Record([1, 2], 0, None, "k" * 201), "an id of at most 200 characters"),
        (Record([1, 2], 0, None, 1.5), "an id of at most 200 characters"),
    ],
)
def test_records_that_are_neither_sample_nor_label_are_rejected(record: Record, why: str) -> None:
    assert why in reason_of(record)


@pytest.mark.parametrize("x", [[0, 256], [-1, 0], [0.5, 1]])
def test_pixels_must_be_integers_from_0_to_255(x: Any) -> None:
    assert "expected integers from 0 to 255" in reason_of(Record(x, 0), IMAGE)


def test_codes_must_be_smaller_than_num_codes() -> None:
    text = SampleFormat((2,), "uint16", 2, num_codes=5)
    assert parse_sample([4, 0], text).tolist() == [4, 0]
    with pytest.raises(InvalidRecord, match="from 0 to 4"):
        parse_sample([5, 0], text)


def test_flat_and_nested_lists_give_the_same_sample() -> None:
    assert parse_sample([1, 2], IMAGE).tolist() == parse_sample([[[1], [2]]], IMAGE).tolist()
    assert parse_sample([1, 2], IMAGE).dtype == np.uint8


def test_named_values_are_ordered_by_the_format() -> None:
    assert parse_sample({"b": 2, "c": 9, "a": 1}, NAMED).tolist() == [1, 2]
    with pytest.raises(InvalidRecord, match="no value for 'b'"):
        parse_sample({"a": 1}, NAMED)


@pytest.mark.parametrize(
    ("y", "label"), [("on", 1), ("7", 2), (7, 2), (np.int64(7), 2), ("1", 1), (True, 1), (2.0, 2)]
)
def test_label_can_be_a_name_or_a_number(y: Any, label: int) -> None:
    (event,) = RecordValidator(NAMED).events([Record([1, 2], y)], str)
    assert event.labels.tolist() == [label]


@pytest.mark.parametrize(
    "t",
    [60, "60", "1970-01-01T00:01:00", "1970-01-01T01:01:00+01:00", datetime(1970, 1, 1, 0, 1)],
)
def test_time_can_be_a_number_or_a_timestamp(t: Any) -> None:
    (event,) = RecordValidator(PLAIN).events([Record([1, 2], 0, t)], str)
    assert isinstance(event, LiveBatch)
    assert event.times.tolist() == [60.0]


def test_record_without_a_time_gets_the_current_time() -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC).timestamp()
    (event,) = RecordValidator(PLAIN, lambda: now).events([Record([1, 2], 0)], str)
    assert isinstance(event, LiveBatch)
    assert event.times.tolist() == [now]


def test_late_label_is_a_separate_event() -> None:
    records = [Record([1, 2], None, None, "k", 1), Record(None, 2, None, "k", 2)]
    batch, late = RecordValidator(PLAIN).events(records, str)
    assert batch.labels.tolist() == [PENDING_LABEL]
    assert late == LateLabels(("k",), late.labels, "2")
    assert late.labels.tolist() == [2]


def test_cursor_advances_past_rejected_records() -> None:
    records = [Record([1, 2], 0, mark=1), BrokenRecord("no JSON", 2), Record([1], 0, mark=3)]
    validator = RecordValidator(PLAIN)
    (event,) = validator.events(records, str)
    assert (event.cursor, validator.rejected) == ("3", 2)
    (event,) = validator.events([BrokenRecord("no JSON", 4)], str)
    assert (event.cursor, len(event.keys)) == ("4", 0)


def test_field_names_can_be_configured() -> None:
    names = FieldNames(x="reading", y="state", t="at", id="serial")
    fields = {"reading": [1, 2], "state": 1, "at": 5, "serial": "k", "more": None}
    assert names.read(fields, 9) == Record([1, 2], 1, 5, "k", 9)
    assert names.read([1, 2], 9) == BrokenRecord(
        "expected an object with the fields 'reading' and 'state', got '[1, 2]'", 9
    )
    assert isinstance(names.read({"more": 1}), BrokenRecord)


def test_columns_replace_the_input_field_unless_all_are_empty() -> None:
    names = FieldNames(columns=("a", "b"))
    assert names.read({"a": 1, "b": 2, "y": 0}) == Record([1, 2], 0)
    assert names.read({"a": "", "b": "", "y": 0, "id": "k"}) == Record(None, 0, None, "k")
    assert names.read({"a": 1, "b": "", "y": 0}) == BrokenRecord("no value for 'b'")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=5,
)
fields = st.dictionaries(st.sampled_from(["x", "y", "t", "id", "z"]), anything)


@given(st.lists(fields | anything, max_size=6))
def test_arbitrary_messages_are_read_or_counted_as_rejected(messages: list[Any]) -> None:
    validator, names = RecordValidator(PLAIN), FieldNames()
    records = [names.read(message, number) for number, message in enumerate(messages)]
    events = list(validator.events(records, str))
    assert len(flatten_events(events)) + validator.rejected == len(messages)
    for event in events:
        if isinstance(event, LiveBatch):
            assert np.isfinite(event.inputs).all()
            assert np.isfinite(event.times).all()
        assert ((event.labels >= PENDING_LABEL) & (event.labels < 3)).all()
    if messages:
        assert events[-1].cursor == str(len(messages) - 1)


ONE_NUMBER = SampleFormat((2,), "float32", 0)
TWO_NUMBERS = SampleFormat((2,), "float32", 0, target_shape=(2,))


@pytest.mark.parametrize("y", [2.5, "2.5", [2.5], np.float64(2.5)])
def test_target_of_a_regression_is_parsed_as_a_number(y: Any) -> None:
    validator = RecordValidator(ONE_NUMBER)
    (batch,) = validator.events([Record([1, 2], y, 0.0)], str)
    assert (batch.labels.tolist(), batch.labels.dtype) == ([2.5], np.float32)


def test_several_numbers_of_a_regression_come_as_a_list() -> None:
    validator = RecordValidator(TWO_NUMBERS)
    records = [
        Record([1, 2], [3, "4.5"], 0.0),
        Record([1, 2], None, 0.0, "a"),
        Record(None, [1, 2], key="a"),
    ]
    batch, late = validator.events(records, str)
    assert batch.labels[0].tolist() == [3.0, 4.5]
    assert np.isnan(batch.labels[1]).all()
    assert late.labels.tolist() == [[1.0, 2.0]]
    assert validator.rejected == 0


@pytest.mark.parametrize(
    "sample_format, y, why",
    [
        (ONE_NUMBER, "nan", "expected a number to predict, finite in 32 bits, got 'nan'"),
        (ONE_NUMBER, 1e39, "finite in 32 bits, got '1e.39'"),
        (ONE_NUMBER, "hot", "expected a number to predict, got 'hot'; y must be a number"),
        (ONE_NUMBER, [1.0, 2.0], r"expected a number to predict, got '\[1.0, 2.0\]'"),
        (ONE_NUMBER, True, "expected a number to predict, got 'True'"),
        (TWO_NUMBERS, 1.0, "expected 2 numbers to predict, got '1.0'; y must be 2 numbers"),
        (TWO_NUMBERS, [1.0, float("inf")], "expected 2 numbers to predict, finite"),
        (TWO_NUMBERS, [[1.0, 2.0]], "expected 2 numbers to predict, got"),
        (TWO_NUMBERS, {"a": 1.0, "b": 2.0}, "expected 2 numbers to predict, got"),
    ],
)
def test_invalid_targets_of_a_regression_are_rejected(
    sample_format: SampleFormat, y: Any, why: str
) -> None:
    validator = RecordValidator(sample_format)
    assert [
        len(each.labels) for each in validator.events([Record([1, 2], y, 0.0, mark=1)], str)
    ] == [0]
    assert validator.rejected == 1
    assert re.search(why, validator.last_rejection), validator.last_rejection
