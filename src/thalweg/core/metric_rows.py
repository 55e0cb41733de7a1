"""Rows of metrics that are written to a file and read from it.

A run folder may come from somebody else, and its checksums do not prevent forgery. Reports rely on
the types of values that this module has checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import msgspec
from msgspec import Meta

from thalweg.core.config import UPPER_BOUNDS
from thalweg.core.decisions import find_missing_values
from thalweg.core.metrics import METRICS

MAX_INT = 1 << 62  # larger integers cannot be converted to floats of tables and figures
MAX_DIGITS = 19

Count = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(pattern=r"^[\w -]{1,100}$")]


class TaskForm(TypedDict):
    """A record of the metric `tasks`."""

    task: str
    assignment: str
    accuracy: float | None
    clients: Count


class RecordForms(TypedDict, total=False):
    """Metrics that reports read and that are not numbers."""

    alarms: list[Count]
    decisions: list[dict[str, Any]]
    drifts: dict[Name, list[Count]]
    serving_weights: dict[Name, float]
    tasks: list[TaskForm]


class AlarmForm(TypedDict, total=False):
    """The number of alarms of a run and, if the drifts are known, how they fit."""

    raised: Count
    drifts: Count
    missed: Count
    false_alarms: Count
    mean_delay: float | None


class SummaryForm(TypedDict, total=False):
    """Parts of the summary of a run that reports show."""

    alarms: AlarmForm
    no_effect: dict[str, str]
    simple_scores: dict[Literal["majority", "mean", "no-change"], dict[str, float]]


def parse_row(line: bytes) -> dict[str, Any]:
    """Return a row of metrics; raise ValueError if reports cannot use it.

    >>> parse_row(b'{"round": 3, "loss": 0.5}')
    {'round': 3, 'loss': 0.5}
    >>> parse_row(b'{"round": 3, "loss": "<b>"}')
    Traceback (most recent call last):
    ValueError: loss: expected a number, got '<b>'
    """
    row = parse_object(line)
    check_row(row)
    return row


def parse_object(line: bytes) -> dict[str, Any]:
    """Return a JSON object with the number of a round; raise ValueError if it is not one."""
    try:
        row = json.loads(line, parse_int=_parse_int)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError(f"expected an object, got {_shorten(row)}")
    rnd = row.get("round")
    if type(rnd) is not int or not 0 <= rnd <= UPPER_BOUNDS["COUNT"]:
        raise ValueError(f"round: expected the number of a round, got {_shorten(rnd)}")
    return row


def check_row(row: Mapping[str, Any]) -> None:
    """Raise ValueError if reports cannot use a row of metrics."""
    for name, value in row.items():
        if not name.isprintable():
            raise ValueError(f"expected printable names of metrics, got {_shorten(name)}")
        metric = METRICS.get(name)
        if metric is None or metric.unit == "record":
            continue
        if not isinstance(value, int | float):
            raise ValueError(f"{name}: expected a number, got {_shorten(value)}")
        if metric.unit == "count" and value < 0:
            raise ValueError(f"{name}: expected a count, got {value}")
    msgspec.convert(
        {name: row[name] for name in row.keys() & RecordForms.__annotations__}, RecordForms
    )
    for decision in row.get("decisions", ()):
        _check_decision(decision)


def check_summary(plain: object) -> None:
    """Raise ValueError if reports cannot use the summary of a run."""
    msgspec.convert(plain, SummaryForm)


def _check_decision(decision: Mapping[str, Any]) -> None:
    for name in ("what", "reason"):
        if not isinstance(decision.get(name), str):
            raise ValueError(f"decisions: {name} must be a text, got {_shorten(decision)}")
    if missing := find_missing_values(decision):
        raise ValueError(f"decisions: {decision['what']} without {', '.join(missing)}")


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS or abs(number := int(digits)) > MAX_INT:
        raise ValueError(f"the integer {_shorten(digits)} is larger than {MAX_INT}")
    return number


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
