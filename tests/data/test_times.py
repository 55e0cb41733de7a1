"""Times of user data: one rule for files, frames and arrays."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import DataError
from thalweg.data import Dataset, Table
from thalweg.data.times import parse_times, to_seconds

N = 10


def load_times(times: list[Any]) -> list[float]:
    """Training times of a frame, the earliest first."""
    columns = {"x": [float(i) for i in range(len(times))], "y": [0, 1] * (len(times) // 2)}
    data = Dataset.from_frame({**columns, "at": times}, label="y", time="at")
    assert data.time is not None
    return list(data.time.tolist())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86400.0),
        ("1970-01-01T00:01:00", 60.0),
        ("1970-01-01 00:01:00.5", 60.5),
        ("1970-01-01T00:00:00Z", 0.0),
        ("1970-01-01T00:00:00-01:30", 5400.0),
        (" 19700101T000100 ", 60.0),
    ],
)
def test_iso_texts_are_seconds_in_utc(text: str, seconds: float) -> None:
    assert parse_times([text], "at").tolist() == [seconds]


def test_objects_and_arrays_follow_the_same_rule() -> None:
    moments = [datetime(1970, 1, 1, 0, 1), date(1970, 1, 2)]
    assert parse_times(moments, "at").tolist() == [60.0, 86400.0]
    assert parse_times([datetime(1970, 1, 1, tzinfo=UTC)], "at").tolist() == [0.0]
    assert to_seconds(np.array(["1970-01-01T00:00:09"]), "x").tolist() == [9.0]
    assert to_seconds(np.array(["1970-01-01T00:00:09"], "datetime64[s]"), "x").tolist() == [9.0]
    assert to_seconds(np.array([7]), "x").tolist() == [7.0]


def test_frames_and_files_have_the_same_times(tmp_path: Path) -> None:
    texts = [f"2026-03-0{1 + i // 5} 0{i % 5}:00:00+01:00" for i in range(N)]
    found = load_times(texts)
    assert np.diff(found).tolist() == [3600.0] * 4 + [20 * 3600.0] + [3600.0] * 2
    rows = "".join(f"{i}.5,{i % 2},{text}\n" for i, text in enumerate(texts))
    (tmp_path / "a.csv").write_text(f"x,y,at\n{rows}")
    data = Table(str(tmp_path / "a.csv"), label="y", time="at").load(None, 0)
    assert data.time is not None
    assert data.time.tolist() == found


def test_time_zones_in_some_rows_are_rejected() -> None:
    texts = ["2026-01-01T00:00:00"] * 3 + ["2026-01-01T00:00:00Z"]
    message = (
        "at: '2026-01-01T00:00:00' in row 1 has none, but '2026-01-01T00:00:00Z' in row 4 has a "
        "time zone; expected the same in all rows. Add the time zone"
    )
    with pytest.raises(DataError, match=message):
        parse_times(texts, "at", first_row=1)


def test_other_texts_are_rejected_with_their_row() -> None:
    with pytest.raises(DataError, match=r"column 'at', row 2 is '31.12.2026'; expected ISO 8601"):
        load_times(["2026-12-30", "31.12.2026"] * 5)
