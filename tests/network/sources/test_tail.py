"""Tests that whole lines of growing files are read once through rotation and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.source import (
    PLAIN,
    FlatEvent,
    check_source,
    flatten_events,
    inputs_of,
    labels_of,
    read_until,
)
from thalweg.core.errors import ConfigError, DataError
from thalweg.network.sources import Event, LiveBatch, SampleFormat, open_source
from thalweg.network.sources.lines import LineReader
from thalweg.network.sources.records import FieldNames
from thalweg.network.sources.spec import parse_spec
from thalweg.network.sources.tail import TailSource, csv_reader, json_reader, tail_source


def tail(path: Path, follow: bool = True, sample_format: SampleFormat = PLAIN) -> TailSource:
    names = FieldNames()
    read = csv_reader(names) if path.suffix == ".csv" else json_reader(names)
    return TailSource(path, sample_format, read, follow=follow, heartbeat_s=0.01, poll=0.001)


def line(number: float, label: Any = 0) -> str:
    return f'{{"x": [{number}, 0], "y": {label}}}\n'


def numbers(events: list[Event]) -> list[float]:
    return [x for x, _ in inputs_of(events)]


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "readings.jsonl"


def test_csv_column_names_are_in_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text('t,a,y,b,id\n5,1,0,2,k\r\n\n6, 3 ,"2",4,m\n')
    found = check_source(lambda: tail(path, follow=False))
    assert found == [((1.0, 2.0), 0, "k"), ((3.0, 4.0), 2, "m")]


def test_csv_label_can_come_in_a_later_line(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("id,a,b,y\nk,1,2,\nm,3,4,1\nk,,,2\n")
    found = check_source(lambda: tail(path, follow=False))
    assert found == [((1.0, 2.0), -1, "k"), ((3.0, 4.0), 1, "m"), ("k", 2)]


def test_invalid_csv_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(b'a,b,y\n1,2,0\n1,2\n1,,0\nx,2,0\n1,2,9\n"1,2,0\n\xff,2,0\n3,4,1\n')
    source = tail(path, follow=False)
    assert labels_of(list(source)) == [0, 1]
    assert source.rejected == 6


def test_named_columns_select_the_features(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("note,b,a,state\nhello,2,1,on\n")
    sample_format = SampleFormat((2,), "float32", 2, classes=("off", "on"))
    source = tail_source(parse_spec(f"{path}?columns=a,b&y=state&follow=no"), sample_format)
    assert flatten_events(list(source)) == [((1.0, 2.0), 1, "")]


def test_json_lines_are_read_and_broken_lines_skipped(path: Path) -> None:
    path.write_text(
        line(1) + "{\n" + "[" * 5000 + "\n" + '{"x": [NaN, 1], "y": 0}\n\n' + line(2, 5) + line(3)
    )
    source = tail(path, follow=False)
    assert numbers(list(source)) == [1, 3]
    assert source.rejected == 4
    assert "unknown label 5" in source.last_rejection.replace("'", "")


def test_line_is_read_when_it_is_complete(path: Path) -> None:
    events = tail(path).events("")
    assert len(next(events).keys) == 0  # no file yet
    write(path, line(1) + line(2)[:10])
    assert numbers(read_until(events, 1)) == [1]
    assert len(next(events).keys) == 0
    write(path, line(2)[10:])
    assert numbers(read_until(events, 1)) == [2]


def test_missing_file_is_reported_until_it_exists(path: Path) -> None:
    source = tail(path)
    events = source.events("")
    next(events)
    assert "there is no file" in source.trouble
    write(path, line(1))
    read_until(events, 1)
    assert source.trouble == ""


def test_closed_source_ends_its_events(path: Path) -> None:
    source = tail(path)
    events = source.events("")
    next(events)
    source.close()
    assert list(events) == []


def test_renamed_file_is_read_to_its_end_before_the_new_file(path: Path) -> None:
    write(path, line(1))
    events = tail(path).events("")
    assert numbers(read_until(events, 1)) == [1]
    old = path.rename(path.with_suffix(".jsonl.1"))
    write(path, line(3))
    write(old, line(2))  # written after the rename
    assert numbers(read_until(events, 2)) == [2, 3]


def test_file_renamed_while_stopped_is_read_to_its_end(path: Path) -> None:
    write(path, line(1))
    (event,) = read_until(tail(path).events(""), 1)
    write(path, line(2))
    path.rename(path.with_suffix(".old"))
    write(path, line(3))
    again = tail(path, follow=False)
    assert numbers(list(again.events(event.cursor))) == [2, 3]


def test_resumed_csv_file_keeps_its_column_names(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("a,b,y\n1,2,0\n")
    (event,) = read_until(tail(path).events(""), 1)
    path.rename(tmp_path / "r.csv.1")
    path.write_text("y,b,a\n1,4,3\n")
    again = tail(path, follow=False)
    assert flatten_events(list(again.events(event.cursor))) == [((4.0, 3.0), 1, "")]


@pytest.mark.parametrize("new", [line(2), line(2) * 5])
def test_rewritten_file_is_read_from_its_beginning(path: Path, new: str) -> None:
    write(path, line(1) * 3)
    events = tail(path).events("")
    (event,) = read_until(events, 3)
    path.write_text(new)  # the same file: shorter, or longer than what was read
    assert numbers(read_until(events, new.count("\n"))) == [2] * new.count("\n")
    again = tail(path, follow=False)
    assert numbers(list(again.events(event.cursor))) == [2] * new.count("\n")


def test_incomplete_last_line_of_a_rotated_file_is_rejected(path: Path) -> None:
    write(path, line(1) + line(2)[:10])
    source = tail(path)
    events = source.events("")
    read_until(events, 1)
    path.rename(path.with_suffix(".old"))
    write(path, line(3))
    assert numbers(read_until(events, 1)) == [3]
    assert source.rejected == 1
    assert "never finished" in source.last_rejection


def test_overlong_line_is_skipped_without_filling_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thalweg.network.sources.lines.MAX_LINE", 100)
    monkeypatch.setattr("thalweg.network.sources.lines.CHUNK", 50)
    write(path, "9" * 350 + "\n" + line(1))
    source = tail(path, follow=False)
    assert numbers(list(source)) == [1]
    assert source.rejected == 4


def test_cursor_of_another_source_is_rejected(path: Path) -> None:
    write(path, line(1))
    with pytest.raises(DataError, match="data of another source"):
        next(tail(path).events('{"item":3}'))
    with pytest.raises(DataError, match="data of another source"):
        next(tail(path).events("nonsense"))


def test_folder_in_place_of_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        tail_source(parse_spec(str(tmp_path / "r.csv")), PLAIN)


def test_source_with_samples_and_late_labels_resumes_after_any_event(path: Path) -> None:
    late = '{"id": "k", "y": 2}\n'
    path.write_text((line(1) + late) * 3 + "bad\n" + late + "bad\n")
    found = check_source(lambda: tail(path, follow=False))
    assert found == [((1.0, 0.0), 0, ""), ("k", 2)] * 3 + [("k", 2)]


steps = st.lists(st.sampled_from(["write", "half", "rotate", "read", "restart"]), max_size=25)


@given(steps)
def test_every_complete_line_is_read_once_after_any_file_operations(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("tail")
    path = folder / "r.jsonl"
    written: list[FlatEvent] = []
    got: list[FlatEvent] = []
    cursor, half, rotated = "", False, 0
    lines = LineReader(path)

    def take(number: int) -> Iterator[str]:
        nonlocal cursor
        for _ in range(number):  # a rotated file is dropped after two reads without data
            for text, at in lines.read(3):
                cursor = lines.cursor(at)
                yield text.decode()

    for step in [*steps, "end"]:
        if step == "write":
            number = len(written)
            write(path, ("" if not half else "tail\n") + f"{number}\n")
            written += (["half-tail"] if half else []) + [str(number)]
            half = False
        elif step == "half" and not half:
            write(path, "half-")
            half = True
        elif step == "rotate" and path.exists() and not half:
            got += take(
                40
            )  # two rotations without a read would lose lines, so read before rotating
            path.rename(folder / f"r.{rotated}")
            rotated += 1
        elif step == "restart":
            lines.close()
            lines = LineReader(path, cursor)
        elif step == "read":
            got += take(1)
    if half:
        write(path, "tail\n")
        written.append("half-tail")
    got += take(60)
    assert got == written
    lines.close()


def test_columns_of_a_csv_file_can_be_numbers_to_predict(tmp_path: Path) -> None:
    file = tmp_path / "flights.csv"
    file.write_text(
        "id,distance,delay,hour,taxi\na,300,12.5,7,3\nb,400,,8,\nc,1,late,2,3\nb,,-4,,2\nd,1,2,3,\n"
    )
    sample_format = SampleFormat((2,), "float32", 0, target_shape=(2,))
    source = open_source(f"{file}?y=delay,taxi&follow=no", sample_format)
    batch, late, *rest = [event for event in source if len(event.keys)]
    assert isinstance(batch, LiveBatch)
    assert batch.inputs.tolist() == [[300.0, 7.0], [400.0, 8.0]]
    assert batch.labels[0].tolist() == [12.5, 3.0]
    assert np.isnan(batch.labels[1]).all(), "arrives later"
    assert (late.keys, late.labels.tolist(), rest) == (("b",), [[-4.0, 2.0]], [])
    assert source.rejected == 2
    assert source.last_rejection == "no value for 'taxi'"


def test_number_of_target_columns_must_fit(tmp_path: Path) -> None:
    sample_format = SampleFormat((2,), "float32", 0, target_shape=(3,))
    with pytest.raises(ConfigError, match=r"expected y= with 3 fields.*got 2 fields"):
        open_source(f"{tmp_path}/a.csv?y=delay,taxi", sample_format)
