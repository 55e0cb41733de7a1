"""Records from outside, checked one by one: what fits becomes a sample, the rest is counted and skipped."""

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

from thalweg.streams.sources.base import LATER, Event, Form, LateLabels, LiveBatch, nothing

MOST_KEY = 200  # characters
SHOWN = 40  # characters of a wrong value in a reason


class Refused(Exception):
    """A record is not a sample of the form that was asked for; says why in one line."""


class Record(NamedTuple):
    """One thing that came, before anybody has looked at it."""

    x: Any  # None: this is a late label
    y: Any = None  # None: comes later
    t: Any = None  # None: now
    key: Any = None  # None: has no name
    mark: Any = None  # how far the source is after this record


class Broken(NamedTuple):
    """Something that came and is no record at all."""

    reason: str
    mark: Any = None


class Names(NamedTuple):
    """What the parts of a record are called in a file or a message."""

    x: str = "x"
    y: str = "y"
    t: str = "t"
    id: str = "id"
    columns: tuple[str, ...] | None = None  # features one by one instead of `x`

    def read(self, fields: Any, mark: Any = None) -> Record | Broken:
        """A record of an object with names."""
        try:
            return self._record(fields, mark)
        except Refused as reason:
            return Broken(str(reason), mark)

    def _record(self, fields: Any, mark: Any) -> Record:
        if not isinstance(fields, Mapping):
            raise Refused(
                f"expected an object with the fields {self.x!r} and {self.y!r}, got {_short(fields)}"
            )
        parts = [fields.get(name) for name in (self.x, self.y, self.t, self.id)]
        x, y, t, key = (None if part == "" else part for part in parts)
        if x is None and self.columns is not None:
            x = self._features(fields)
        if x is None and key is None:
            raise Refused(
                f"expected {self.x!r}, or {self.id!r} and {self.y!r} for a late label, got "
                f"{_short(', '.join(map(str, fields)))}"
            )
        return Record(x, y, t, key, mark)

    def _features(self, fields: Mapping[str, Any]) -> list[Any] | None:
        """The named columns; none, if all of them are empty: then it is a late label."""
        assert self.columns is not None
        values = [fields.get(name) for name in self.columns]
        missing = [
            name for name, value in zip(self.columns, values, strict=True) if value in (None, "")
        ]
        if len(missing) == len(values):
            return None
        if missing:
            raise Refused(f"no value for {missing[0]!r}")
        return values


class Sieve:
    """Lets through what fits a form, and counts what does not."""

    def __init__(self, form: Form, clock: Callable[[], float] = time.time) -> None:
        self.form = form
        self.refused = 0
        self.last_reason = ""
        self._clock = clock
        self._class_of = {name: number for number, name in enumerate(form.classes or ())}

    def refuse(self, reason: object) -> None:
        self.refused += 1
        self.last_reason = str(reason)

    def events(
        self, records: Iterable[Record | Broken], cursor_of: Callable[[Any], str]
    ) -> Iterator[Event]:
        """Batches and late labels in the order of the records; the last of them has the last record's cursor.

        Every event has the cursor of its own last record, so that a stop between two events loses nothing.
        """
        fine: list[Record] = []
        mark = None
        for record in records:
            mark = record.mark
            if isinstance(record, Broken):
                self.refuse(record.reason)
                continue
            try:
                fine.append(self._checked(record))
            except Refused as reason:
                self.refuse(reason)
        runs = [list(run) for _, run in groupby(fine, lambda record: record.x is None)]
        for run in runs[:-1]:
            yield self._event(run, cursor_of(run[-1].mark))
        if runs:
            yield self._event(runs[-1], cursor_of(mark))
        elif mark is not None:
            yield nothing(self.form, cursor_of(mark))

    def _event(self, run: Sequence[Record], cursor: str) -> Event:
        keys = tuple(record.key for record in run)
        labels = np.array([record.y for record in run], dtype=np.int64)
        if run[0].x is None:
            return LateLabels(keys, labels, cursor)
        inputs = self.form.empty(len(run))
        for i, record in enumerate(run):
            inputs[i] = record.x
        return LiveBatch(inputs, labels, np.array([record.t for record in run]), keys, cursor)

    def _checked(self, record: Record) -> Record:
        key = _key(record.key)
        label = LATER if record.y is None else self._label(record.y)
        if label == LATER and not key:
            raise Refused("no label, and no id by which one could come later")
        if record.x is None:
            if label == LATER or not key:
                raise Refused(
                    "neither a sample nor the label of one: expected x, or an id and a label"
                )
            return record._replace(y=label, key=key)
        sample = sample_of(record.x, self.form)
        moment = self._clock() if record.t is None else _moment(record.t)
        return record._replace(x=sample, y=label, t=moment, key=key)

    def _label(self, value: Any) -> int:
        """A class by its name, which may look like a number; else by its number."""
        if isinstance(value, str | Integral | np.bool_) and str(value) in self._class_of:
            return self._class_of[str(value)]
        number = _whole(value)
        if number is None or not 0 <= number < self.form.num_classes:
            names = f" or one of {_short(', '.join(self._class_of))}" if self._class_of else ""
            raise Refused(
                f"unknown label {_short(value)}: expected 0 to {self.form.num_classes - 1}{names}"
            )
        return number


def sample_of(value: Any, form: Form) -> npt.NDArray[Any]:
    """A sample as it is stored, or a `Refused` that says what is wrong with it."""
    if isinstance(value, Mapping):
        value = _in_order(value, form)
    try:
        x = np.asarray(value)
        if x.dtype.kind in "US":  # a text file has nothing but text
            x = x.astype(np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise Refused(f"expected {form.size} numbers, got {_short(value)}") from error
    if x.dtype.kind not in "biuf":
        raise Refused(f"expected {form.size} numbers, got {_short(value)}")
    if x.shape not in (form.shape, (form.size,)):
        raise Refused(f"expected shape {form.shape}, got {x.shape}")
    return _stored(x.reshape(form.shape), form)


def _stored(x: npt.NDArray[Any], form: Form) -> npt.NDArray[Any]:
    """Numbers in the type of the form, none of them changed by it beyond rounding."""
    if not np.isfinite(x).all():
        raise Refused("expected finite numbers, got nan or infinity")
    if form.width:
        with np.errstate(over="ignore"):
            x = ((x.reshape(-1) - form.centre) / form.width).reshape(form.shape)
    if form.dtype == "float32":
        if not np.abs(x).max() <= np.finfo(np.float32).max:
            raise Refused(
                f"expected numbers that fit in 32 bits, got {np.abs(x).max():g}{_on_scale(form)}"
            )
        return x.astype(np.float32)
    most = form.num_codes - 1 if form.num_codes else int(np.iinfo(form.dtype).max)
    if x.min() < 0 or x.max() > most or (x != np.floor(x)).any():
        raise Refused(f"expected whole numbers from 0 to {most}, got {x.min():g} to {x.max():g}")
    return x.astype(form.dtype)


def _on_scale(form: Form) -> str:
    return " on the scale of the federation's data" if form.width else ""


def _in_order(value: Mapping[Any, Any], form: Form) -> list[Any]:
    if form.columns is None:
        raise Refused(
            "x names its numbers, but nobody has said in which order; say columns=..., or send a list"
        )
    missing = [name for name in form.columns if name not in value]
    if missing:
        raise Refused(f"no value for {missing[0]!r}; x has {_short(', '.join(map(str, value)))}")
    return [value[name] for name in form.columns]


def _key(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str | int) or len(str(value)) > MOST_KEY:
        raise Refused(f"expected an id of at most {MOST_KEY} characters, got {_short(value)}")
    return str(value)


def _whole(value: Any) -> int | None:
    """A whole number, from a number or a text; none: it is not one."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number == math.floor(number) else None


def _moment(value: Any) -> float:
    """Unix seconds, from a number, a moment, or a text of either (ISO 8601; without a zone: UTC)."""
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        seconds = _from_calendar(value)
    if not math.isfinite(seconds):
        raise Refused(f"expected a time in unix seconds or ISO 8601, got {_short(value)}")
    return seconds


def _from_calendar(value: Any) -> float:
    moment = value
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            return math.nan
    if not isinstance(moment, datetime.datetime):
        return math.nan
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _short(value: object) -> str:
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")
