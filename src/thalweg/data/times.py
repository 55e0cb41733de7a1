"""Times in user data: numbers, dates and ISO 8601 texts as seconds.

All inputs follow the same rule: a time without a time zone is UTC, and a column has time zones in
all of its rows or in none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Floats

EXPECTED = "expected ISO 8601 such as 2026-01-31 12:00:00 or 2026-01-31T12:00:00+01:00, or numbers"


def parse_times(values: Sequence[Any], place: str, first_row: int = 0) -> Floats:
    """Return texts and `datetime` objects as seconds since 1970.

    `place` names the column in messages, and `first_row` is the number of its first row.

    >>> parse_times(["1970-01-01T01:00:00+01:00", "1970-01-01T00:00:30Z"], "time").tolist()
    [0.0, 30.0]
    """
    moments = [_parse(value, f"{place}, row {row}") for row, value in enumerate(values, first_row)]
    has_zone = np.array([moment.tzinfo is not None for moment in moments])
    if has_zone.any() and not has_zone.all():
        row = int(np.argmax(has_zone != has_zone[0]))
        raise DataError(
            f"{place}: {str(values[0])!r} in row {first_row} {_describe_zone(has_zone[0])}, but "
            f"{str(values[row])!r} in row {first_row + row} {_describe_zone(has_zone[row])}; "
            "expected the same in all rows. Add the time zone to all times, or remove it."
        )
    seconds = [(each if each.tzinfo else each.replace(tzinfo=UTC)).timestamp() for each in moments]
    return np.array(seconds, dtype=np.float64)


def to_seconds(column: npt.NDArray[Any], where: str) -> Floats:
    """Return an array of numbers, dates, `datetime` objects or texts as float64.

    Numbers remain as they are.
    """
    if column.dtype.kind in "OU":
        return parse_times(column.tolist(), f"{where}: time")
    if column.dtype.kind == "M":
        time = column.astype("datetime64[ns]").astype(np.int64) / 1e9
        time[np.isnat(column)] = np.nan
    elif column.dtype.kind in "fiu":
        time = column.astype(np.float64)
    else:
        raise DataError(f"{where}: time is {column.dtype}; {EXPECTED}.")
    if not np.isfinite(time).all():
        row = int(np.argmin(np.isfinite(time)))
        raise DataError(f"{where}: time[{row}] is {column[row]}; expected a finite moment.")
    return time


def _parse(value: Any, place: str) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        return datetime.fromisoformat(value.strip())
    except (AttributeError, TypeError, ValueError):  # TypeError: bytes
        raise DataError(f"{place} is {value!r}; {EXPECTED}.") from None


def _describe_zone(has_zone: bool) -> str:
    return "has a time zone" if has_zone else "has none"
