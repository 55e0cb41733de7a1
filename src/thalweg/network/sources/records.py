"""Validation of external records: valid ones become samples, others are counted and skipped."""

from __future__ import annotations

import datetime
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.network.sources.base import (
    Event,
    LateLabels,
    LiveBatch,
    SampleFormat,
    Targets,
    empty_batch,
)

MAX_KEY = 200  # characters
MAX_SHOWN = 40  # characters of an invalid value in a message


class InvalidRecord(Exception):
    """A record does not have the required format; the message is one line."""


class Record(NamedTuple):
    """One record before validation."""

    x: Any  # None: a late label
    y: Any = None  # class or numbers; None: arrives later
    t: Any = None  # None: now
    key: Any = None  # None: no name
    mark: Any = None  # position of the source after this record


class BrokenRecord(NamedTuple):
    """Input that is not a record."""

    reason: str
    mark: Any = None


class FieldNames(NamedTuple):
    """Field names of a record in a file or a message."""

    x: str = "x"
    y: str | tuple[str, ...] = "y"  # one field, or one for each number to predict
    t: str = "t"
    id: str = "id"
    columns: tuple[str, ...] | None = None  # single feature columns instead of `x`

    def read(self, fields: Any, mark: Any = None) -> Record | BrokenRecord:
        """Convert a mapping to a record."""
        try:
            return self._record(fields, mark)
        except InvalidRecord as reason:
            return BrokenRecord(str(reason), mark)

    def _record(self, fields: Any, mark: Any) -> Record:
        if not isinstance(fields, Mapping):
            raise InvalidRecord(
                f"expected an object with the fields {self.x!r} and {self.y_names!r}, got "
                f"{_shorten(fields)}"
            )
        parts = [fields.get(name) for name in (self.x, self.t, self.id)]
        x, t, key = (None if _is_empty(part) else part for part in parts)
        y = self._read_target(fields)
        if x is None and self.columns is not None:
            x = _read_columns(fields, self.columns)
        if x is None and key is None:
            raise InvalidRecord(
                f"expected {self.x!r}, or {self.id!r} and {self.y_names!r} for a late label, got "
                f"{_shorten(', '.join(map(str, fields)))}"
            )
        return Record(x, y, t, key, mark)

    @property
    def y_names(self) -> str:
        return self.y if isinstance(self.y, str) else ",".join(self.y)

    @property
    def not_features(self) -> set[str]:
        """Names of the fields that are never features."""
        return {*([self.y] if isinstance(self.y, str) else self.y), self.t, self.id}

    def _read_target(self, fields: Mapping[str, Any]) -> Any:
        if not isinstance(self.y, str):
            return _read_columns(fields, self.y)
        value = fields.get(self.y)
        return None if _is_empty(value) else value


def _read_columns(fields: Mapping[str, Any], names: Sequence[str]) -> list[Any] | None:
    """The values of some columns; None if all are empty: then they arrive in another record."""
    values = [fields.get(name) for name in names]
    missing = [name for name, value in zip(names, values, strict=True) if _is_empty(value)]
    if len(missing) == len(values):
        return None
    if missing:
        raise InvalidRecord(f"no value for {missing[0]!r}")
    return values


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value == "")


class RecordValidator:
    """Converts valid records to samples and counts invalid ones."""

    def __init__(self, sample_format: SampleFormat, clock: Callable[[], float] = time.time) -> None:
        self.sample_format = sample_format
        self.rejected = 0
        self.last_rejection = ""
        self._clock = clock
        self._class_of = {name: number for number, name in enumerate(sample_format.classes or ())}

    def reject(self, reason: object) -> None:
        self.rejected += 1
        self.last_rejection = str(reason)

    def events(
        self, records: Iterable[Record | BrokenRecord], cursor_of: Callable[[Any], str]
    ) -> Iterator[Event]:
        """Batches and late labels in the order of the records.

        Every event has the cursor of its own last record, so that a stop between two events loses
        nothing.
        """
        fine: list[Record] = []
        mark = None
        for record in records:
            mark = record.mark
            if isinstance(record, BrokenRecord):
                self.reject(record.reason)
                continue
            try:
                fine.append(self._check_record(record))
            except InvalidRecord as reason:
                self.reject(reason)
        runs = [list(run) for _, run in groupby(fine, lambda record: record.x is None)]
        for run in runs[:-1]:
            yield self._make_event(run, cursor_of(run[-1].mark))
        if runs:
            yield self._make_event(runs[-1], cursor_of(mark))
        elif mark is not None:
            yield empty_batch(self.sample_format, cursor_of(mark))

    def _make_event(self, run: Sequence[Record], cursor: str) -> Event:
        keys = tuple(record.key for record in run)
        labels = self.sample_format.empty_targets(len(run))
        for i, record in enumerate(run):
            labels[i] = record.y
        if run[0].x is None:
            return LateLabels(keys, labels, cursor)
        inputs = self.sample_format.empty(len(run))
        for i, record in enumerate(run):
            inputs[i] = record.x
        return LiveBatch(inputs, labels, np.array([record.t for record in run]), keys, cursor)

    def _check_record(self, record: Record) -> Record:
        key = _parse_key(record.key)
        label: Any = self.sample_format.pending
        if record.y is not None:
            is_regression = self.sample_format.is_regression
            label = self._parse_numbers(record.y) if is_regression else self._parse_label(record.y)
        if record.y is None and not key:
            raise InvalidRecord("no label, and no id for a late label")
        if record.x is None:
            if record.y is None or not key:
                raise InvalidRecord(
                    "neither a sample nor a late label: expected x, or an id and a label"
                )
            return record._replace(y=label, key=key)
        sample = parse_sample(record.x, self.sample_format)
        moment = self._clock() if record.t is None else _parse_time(record.t)
        return record._replace(x=sample, y=label, t=moment, key=key)

    def _parse_numbers(self, value: Any) -> Targets:
        """Parse the numbers to predict of a sample."""
        number, shape = self.sample_format.num_targets, self.sample_format.target_shape
        expected = "a number" if number == 1 else f"{number} numbers"
        hint = f"y must be {expected} per sample; leave it empty if it arrives later"
        try:
            y = np.asarray(value)
            y = y.astype(np.float64) if y.dtype.kind in "US" else y
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidRecord(
                f"expected {expected} to predict, got {_shorten(value)}; {hint}"
            ) from error
        if y.dtype.kind not in "iuf" or y.size != number or y.ndim > 1:
            raise InvalidRecord(f"expected {expected} to predict, got {_shorten(value)}; {hint}")
        if not (np.abs(y) <= np.finfo(np.float32).max).all():  # False for nan
            raise InvalidRecord(
                f"expected {expected} to predict, finite in 32 bits, got {_shorten(value)}; {hint}"
            )
        return y.astype(np.float32).reshape(shape)

    def _parse_label(self, value: Any) -> int:
        """Parse a class by name (names may look like numbers), else by number."""
        if isinstance(value, str | Integral | np.bool_) and str(value) in self._class_of:
            return self._class_of[str(value)]
        number = _parse_integer(value)
        if number is None or not 0 <= number < self.sample_format.num_classes:
            names = f" or one of {_shorten(', '.join(self._class_of))}" if self._class_of else ""
            raise InvalidRecord(
                f"unknown label {_shorten(value)}: expected 0 to "
                f"{self.sample_format.num_classes - 1}{names}"
            )
        return number


def parse_sample(value: Any, sample_format: SampleFormat) -> npt.NDArray[Any]:
    """A sample in its storage format, or an `InvalidRecord` with the reason."""
    if isinstance(value, Mapping):
        value = _order_columns(value, sample_format)
    try:
        x = np.asarray(value)
        if x.dtype.kind in "US":  # text files contain only text
            x = x.astype(np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRecord(
            f"expected {sample_format.size} numbers, got {_shorten(value)}"
        ) from error
    if x.dtype.kind not in "biuf":
        raise InvalidRecord(f"expected {sample_format.size} numbers, got {_shorten(value)}")
    if x.shape not in (sample_format.shape, (sample_format.size,)):
        raise InvalidRecord(f"expected shape {sample_format.shape}, got {x.shape}")
    return _to_stored_dtype(x.reshape(sample_format.shape), sample_format)


def _to_stored_dtype(x: npt.NDArray[Any], sample_format: SampleFormat) -> npt.NDArray[Any]:
    """Convert to the storage dtype; values may change only by rounding."""
    if not np.isfinite(x).all():
        raise InvalidRecord("expected finite numbers, got nan or infinity")
    if sample_format.width:
        with np.errstate(over="ignore"):
            x = ((x.reshape(-1) - sample_format.centre) / sample_format.width).reshape(
                sample_format.shape
            )
    if sample_format.dtype == "float32":
        if not np.abs(x).max() <= np.finfo(np.float32).max:
            raise InvalidRecord(
                "expected numbers that fit in 32 bits, got "
                f"{np.abs(x).max():g}{_scale_note(sample_format)}"
            )
        return x.astype(np.float32)
    most = (
        sample_format.num_codes - 1
        if sample_format.num_codes
        else int(np.iinfo(sample_format.dtype).max)
    )
    if x.min() < 0 or x.max() > most or (x != np.floor(x)).any():
        raise InvalidRecord(f"expected integers from 0 to {most}, got {x.min():g} to {x.max():g}")
    return x.astype(sample_format.dtype)


def _scale_note(sample_format: SampleFormat) -> str:
    return " on the scale of the federation's data" if sample_format.width else ""


def _order_columns(value: Mapping[Any, Any], sample_format: SampleFormat) -> list[Any]:
    if sample_format.columns is None:
        raise InvalidRecord(
            "x is a mapping, but the order of its features is unknown; set columns=..., or send a "
            "list"
        )
    missing = [name for name in sample_format.columns if name not in value]
    if missing:
        raise InvalidRecord(
            f"no value for {missing[0]!r}; x has {_shorten(', '.join(map(str, value)))}"
        )
    return [value[name] for name in sample_format.columns]


def _parse_key(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str | int) or len(str(value)) > MAX_KEY:
        raise InvalidRecord(
            f"expected an id of at most {MAX_KEY} characters, got {_shorten(value)}"
        )
    return str(value)


def _parse_integer(value: Any) -> int | None:
    """Parse an integer from a number or text; None if it is not an integer."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number == math.floor(number) else None


def _parse_time(value: Any) -> float:
    """Unix seconds from a number, a datetime, or a text of either (ISO 8601; default zone UTC)."""
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = _parse_datetime(value)
    if not math.isfinite(seconds):
        raise InvalidRecord(f"expected a time in unix seconds or ISO 8601, got {_shorten(value)}")
    return seconds


def _parse_datetime(value: Any) -> float:
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            return math.nan
    if not isinstance(moment, datetime.datetime):
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _shorten(value: object) -> str:
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…")
