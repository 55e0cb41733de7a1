from __future__ import annotations

from pathlib import Path

import pytest

from thalweg.core.errors import ConfigError, DataError
from thalweg.streams import Timetable, Trace


def read_trace(
    folder: Path, text: str | bytes, num_clients: int = 3, rounds: int = 10, tolerance: float = 0.0
) -> Timetable:
    file = folder / "stays.csv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return Trace(str(file), tolerance).timetable(num_clients, rounds, seed=0)


def test_each_trace_line_is_a_stay_and_an_empty_leave_is_open_ended(tmp_path: Path) -> None:
    table = read_trace(tmp_path, "client,join,leave\n0,0,4\n2,3,\n0,6,8\n")
    members = [table.members(rnd).tolist() for rnd in range(10)]
    assert members == [[0]] * 3 + [[0, 2]] + [[2]] * 2 + [[0, 2]] * 2 + [[2]] * 2
    assert table.starts.tolist() == [0, 3, 4, 6, 8]
    assert table.attendance.tolist() == [0.6, 0.0, 0.7]


def test_trace_accepts_any_column_order_extra_columns_spaces_and_empty_lines(
    tmp_path: Path,
) -> None:
    text = "\ufeffleave,note,client,join\r\n 5 ,back soon,1, 2\r\n\r\n,,0,0\r\n"
    table = read_trace(tmp_path, text)
    assert table.members(2).tolist() == [0, 1]
    assert table.members(5).tolist() == [0]


def test_rejoining_in_the_round_of_leaving_continues_the_stay(tmp_path: Path) -> None:
    assert read_trace(tmp_path, "client,join,leave\n0,4,\n0,0,4\n").starts.tolist() == [0]


def test_stays_after_the_run_are_ignored(tmp_path: Path) -> None:
    text = "client,join,leave\n0,0,400\n1,11,20\n2,900000000000000,\n"
    assert read_trace(tmp_path, text).attendance.tolist() == [1.0, 0.0, 0.0]


def test_trace_supports_a_tolerance(tmp_path: Path) -> None:
    text = "client,join,leave\n0,0,\n1,0,\n2,0,5\n"
    assert read_trace(tmp_path, text, tolerance=0.4).starts.tolist() == [0]
    assert read_trace(tmp_path, text, tolerance=0.3).starts.tolist() == [0, 5]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "0,0,5\n0,3,9",
            r"lines 2 and 3 overlap: client 0 joins in round 3, but .* leaves in round 5",
        ),
        ("0,3,9\n1,0,\n0,0,5", r"lines 4 and 2 overlap: client 0 joins in round 3"),
        ("1,2,\n1,7,9", r"lines 2 and 3 overlap: .* from round 2 on and never leaves"),
        (
            "0,5,5",
            r"line 2: client 0 joins in round 5 and leaves in round 5; a stay must last at least "
            r"one round",
        ),
        ("0,0,1\n0,7,3", r"line 3: client 0 joins in round 7 and leaves in round 3"),
        ("0,-1,3", r"line 2: join is '-1'; expected a whole number from 0 on"),
        ("0,1,-3", r"line 2: leave is '-3'; .* \(empty: it never leaves\)"),
        ("0,0,5\n\n0,six,9", r"line 4: join is 'six'"),
        ("0,1.5,9", r"line 2: join is '1.5'"),
        ("0,,9", r"line 2: join is ''"),
        ("anna,0,9", r"line 2: client is 'anna'"),
        ("0,٣,9", r"line 2: join is '٣'"),
        ("0,1_0,99", r"line 2: join is '1_0'"),
        ("0,0,9999999999999999999", r"line 2: leave is '9999999999999999999'"),
        ("0,0,3\n3,0,5", r"line 3: there is no client 3; the world has 3, 0 to 2"),
        ("0,0", r"line 2 does not have as many cells"),
        ("0,0,5,7", r"line 2 does not have as many cells"),
        ('0,0,"5', r"not a readable CSV file"),
        ("", r"none of its 0 stays begins within the 10 rounds"),
        ("0,1700000000,1700000600", r"none of its 1 stays .* join and leave must be rounds"),
    ],
)
def test_invalid_trace_lines_are_rejected_with_their_number(
    tmp_path: Path, lines: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_trace(tmp_path, f"client,join,leave\n{lines}\n")


def test_files_that_are_not_traces_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected the columns client, join, leave .* got user, t"):
        read_trace(tmp_path, "user,t\n0,0\n")
    with pytest.raises(DataError, match="in the first line, got nothing"):
        read_trace(tmp_path, "")
    with pytest.raises(DataError, match="not a readable CSV file"):
        read_trace(tmp_path, b"client,join,leave\n0,0,\xff\xfe\n")
    with pytest.raises(DataError, match=r"cannot read the trace .*nowhere.csv: No such file"):
        Trace(str(tmp_path / "nowhere.csv")).timetable(3, 10, 0)
    with pytest.raises(DataError, match="cannot read the trace"):
        Trace(str(tmp_path)).timetable(3, 10, 0)


def test_trace_without_a_path_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"--set sessions.path=stays.csv"):
        Trace().timetable(3, 10, 0)
    with pytest.raises(ConfigError, match="tolerance must lie in"):
        Trace("stays.csv", tolerance=-1.0)
