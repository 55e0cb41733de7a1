from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import ConfigError, DataError
from thalweg.core.transforms import Rotated
from thalweg.core.views import View
from thalweg.streams import DriftTable, Setting, Timeline

SETTING = Setting(np.arange(30) % 3, 3, ticks=1, capacity=8, rounds=10, seed=4)


def read_table(folder: Path, text: str | bytes, num_clients: int = 3) -> Timeline:
    file = folder / "drift.csv"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return DriftTable(str(file)).timeline(num_clients, SETTING)


def test_each_line_of_a_drift_table_is_a_view_change(tmp_path: Path) -> None:
    timeline = read_table(
        tmp_path, "client,from_round,concept,rotation\n0,4,1,90\n2,0,0,-90\n0,6,0,0\n"
    )
    assert timeline.views == (View(), View(Rotated(90.0), (2, 1, 0)), View(Rotated(270.0)))
    assert [timeline.at(rnd).tolist() for rnd in (0, 4, 6)] == [[0, 0, 2], [1, 0, 2], [0, 0, 2]]


def test_drift_table_accepts_ranges_any_column_order_spaces_and_empty_cells(tmp_path: Path) -> None:
    text = "\ufefffrom_round,client,concept\r\n 3 , 0-1 ,1\r\n\r\n5,*,2\r\n0,2,\r\n"
    timeline = read_table(tmp_path, text)
    views = [[timeline.views[v].labels for v in timeline.at(rnd)] for rnd in (0, 3, 5)]
    assert views == [[None] * 3, [(2, 1, 0), (2, 1, 0), None], [(1, 2, 0)] * 3]


def test_drift_table_lines_can_be_gradual(tmp_path: Path) -> None:
    timeline = read_table(tmp_path, "client,from_round,until_round,concept\n0,2,5,1\n1,2,,1\n")
    assert timeline.view_transition(0, 3)[2] == 0.5
    assert timeline.view_transition(1, 2) == (1, 1, 1.0)


def test_drift_table_lines_after_the_run_are_ignored(tmp_path: Path) -> None:
    timeline = read_table(tmp_path, "client,from_round,concept\n0,10,1\n1,900000000,2\n")
    assert timeline.views == (View(),)


def test_drift_table_works_with_one_client(tmp_path: Path) -> None:
    assert read_table(tmp_path, "client,from_round,concept\n*,1,1\n", 1).at(1).tolist() == [1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("3,1,0,0", "line 2: there is no client 3; the world has 3, 0 to 2"),
        ("1-7,1,0,0", "line 2: there is no client 7"),
        ("2-1,1,0,0", "line 2: the range of clients 2-1 is empty"),
        ("-1,1,0,0", "line 2: client is ''; expected a whole number.*range such as 0-9 or"),
        ("all,1,0,0", "line 2: client is 'all'"),
        ("0,-1,0,0", "line 2: from_round is '-1'; expected a whole number from 0 on"),
        ("0,,0,0", "line 2: from_round is ''"),
        ("0,1.5,0,0", "line 2: from_round is '1.5'"),
        ("0,1,4,0", "line 2: there is no concept 4; with 3 classes there are 0 to 3"),
        ("0,1,x,0", "line 2: concept is 'x'"),
        ("0,1,0,north", "line 2: rotation is 'north'; expected degrees"),
        ("0,1,0,nan", "line 2: rotation is 'nan'"),
        ("0,1,1", "line 2 does not have as many cells"),
        ("0,1,1,0,0", "line 2 does not have as many cells"),
        ("0,4,1,0\n1,4,0,0\n0,4,2,0", "lines 2 and 4 overlap: client 0 changes in round 4"),
        ("*,4,1,0\n1,4,0,0", "lines 2 and 3 overlap: client 1"),
        ("", "has a header but no lines"),
    ],
)
def test_invalid_drift_table_lines_are_rejected_with_their_number(
    tmp_path: Path, lines: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_table(tmp_path, f"client,from_round,concept,rotation\n{lines}\n")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0,2,5\n0,5,6", "it turns gradually from round 2 until round 5"),
        ("0,5,2", "until_round 2 is before from_round 5"),
    ],
)
def test_invalid_gradual_drift_table_lines_are_rejected(
    tmp_path: Path, lines: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_table(tmp_path, f"client,from_round,until_round\n{lines}\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "got nothing"),
        ("client,concept\n0,1\n", "expected the columns client, from_round and some of"),
        ("client,from_round,angle\n0,1,5\n", "got client, from_round, angle"),
        ("client,from_round,client\n0,1,5\n", "got client, from_round, client"),
        (b"\xff\xfe\x00", "is not a readable CSV file"),
    ],
)
def test_files_that_are_not_drift_tables_are_rejected(
    tmp_path: Path, content: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_table(tmp_path, content)


def test_missing_drift_table_file_is_named_in_the_error() -> None:
    with pytest.raises(DataError, match=r"cannot read the drift table nowhere/drift.csv"):
        DriftTable("nowhere/drift.csv").timeline(3, SETTING)


def test_drift_table_accepts_lines_from_python() -> None:
    timeline = DriftTable(lines=((0, 4, 1, 90.0), (0, 2, 1, 0.0))).timeline(2, SETTING)
    assert timeline.at(3).tolist() == [1, 0]
    assert timeline.views[timeline.at(4)[0]] == View(Rotated(90.0), (2, 1, 0))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (((0, 1, 0, 0.0), (2, 1, 0, 0.0)), "line 2: there is no client 2; the world has 2"),
        (((-1, 1, 0, 0.0),), "line 1: there is no client -1"),
        (((0, -3, 0, 0.0),), "line 1: rounds count from 0, got -3"),
        (((0, 1, 4, 0.0),), "line 1: expected a concept from 0 to 3"),
        (((0, 1, 0, float("inf")),), "and an angle, got 0 and inf"),
        (
            ((0, 1, 0, 0.0), (0, 1, 1, 0.0)),
            "lines 1 and 2 overlap: client 0 changes twice in round 1",
        ),
    ],
)
def test_invalid_drift_table_lines_from_python_are_rejected(lines: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DriftTable(lines=lines).timeline(2, SETTING)


def test_drift_table_needs_either_a_path_or_lines() -> None:
    with pytest.raises(ConfigError, match="set either path or lines of a drift table"):
        DriftTable("drift.csv", ((0, 1, 0, 0.0),))
    with pytest.raises(ConfigError, match=r"--set drift\.path=drift\.csv"):
        DriftTable().timeline(2, SETTING)
