"""Growing files: whole lines, once each, through rotation, truncation and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from thalweg.core.errors import DataError
from thalweg.network.sources import Event, SampleFormat
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


def test_a_csv_file_has_its_names_in_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text('t,a,y,b,id\n5,1,0,2,k\r\n\n6, 3 ,"2",4,m\n')
    found = check_source(lambda: tail(path, follow=False))
    assert found == [((1.0, 2.0), 0, "k"), ((3.0, 4.0), 2, "m")]


def test_a_label_in_csv_may_come_in_a_later_line(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("id,a,b,y\nk,1,2,\nm,3,4,1\nk,,,2\n")
    found = check_source(lambda: tail(path, follow=False))
    assert found == [((1.0, 2.0), -1, "k"), ((3.0, 4.0), 1, "m"), ("k", 2)]


def test_csv_lines_that_are_wrong_are_counted_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(b'a,b,y\n1,2,0\n1,2\n1,,0\nx,2,0\n1,2,9\n"1,2,0\n\xff,2,0\n3,4,1\n')
    source = tail(path, follow=False)
    assert labels_of(list(source)) == [0, 1]
    assert source.rejected == 6


def test_only_named_columns_are_read_if_some_are_named(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("note,b,a,state\nhello,2,1,on\n")
    sample_format = SampleFormat((2,), "float32", 2, classes=("off", "on"))
    source = tail_source(parse_spec(f"{path}?columns=a,b&y=state&follow=no"), sample_format)
    assert flatten_events(list(source)) == [((1.0, 2.0), 1, "")]


def test_lines_of_json_are_read_and_broken_ones_skipped(path: Path) -> None:
    path.write_text(
        line(1) + "{\n" + "[" * 5000 + "\n" + '{"x": [NaN, 1], "y": 0}\n\n' + line(2, 5) + line(3)
    )
    source = tail(path, follow=False)
    assert numbers(list(source)) == [1, 3]
    assert source.rejected == 4
    assert "unknown label 5" in source.last_rejection.replace("'", "")


def test_a_line_counts_when_it_is_whole(path: Path) -> None:
    events = tail(path).events("")
    assert len(next(events).keys) == 0  # no file yet
    write(path, line(1) + line(2)[:10])
    assert numbers(read_until(events, 1)) == [1]
    assert len(next(events).keys) == 0
    write(path, line(2)[10:])
    assert numbers(read_until(events, 1)) == [2]


def test_a_missing_file_is_said_until_it_comes(path: Path) -> None:
    source = tail(path)
    events = source.events("")
    next(events)
    assert "there is no file" in source.trouble
    write(path, line(1))
    read_until(events, 1)
    assert source.trouble == ""


def test_a_source_that_is_closed_ends(path: Path) -> None:
    source = tail(path)
    events = source.events("")
    next(events)
    source.close()
    assert list(events) == []


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(path: Path) -> None:
    write(path, line(1))
    events = tail(path).events("")
    assert numbers(read_until(events, 1)) == [1]
    old = path.rename(path.with_suffix(".jsonl.1"))
    write(path, line(3))
    write(old, line(2))  # its writer has not noticed yet
    assert numbers(read_until(events, 2)) == [2, 3]


def test_a_file_that_was_renamed_while_nobody_read_is_read_to_its_end(path: Path) -> None:
    write(path, line(1))
    (event,) = read_until(tail(path).events(""), 1)
    write(path, line(2))
    path.rename(path.with_suffix(".old"))
    write(path, line(3))
    again = tail(path, follow=False)
    assert numbers(list(again.events(event.cursor))) == [2, 3]


def test_a_csv_file_that_is_read_on_knows_its_names(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("a,b,y\n1,2,0\n")
    (event,) = read_until(tail(path).events(""), 1)
    path.rename(tmp_path / "r.csv.1")
    path.write_text("y,b,a\n1,4,3\n")
    again = tail(path, follow=False)
    assert flatten_events(list(again.events(event.cursor))) == [((4.0, 3.0), 1, "")]


@pytest.mark.parametrize("new", [line(2), line(2) * 5])
def test_a_file_that_is_written_anew_is_read_from_its_beginning(path: Path, new: str) -> None:
    write(path, line(1) * 3)
    events = tail(path).events("")
    (event,) = read_until(events, 3)
    path.write_text(new)  # the same file: shorter, or longer than what was read
    assert numbers(read_until(events, new.count("\n"))) == [2] * new.count("\n")
    again = tail(path, follow=False)
    assert numbers(list(again.events(event.cursor))) == [2] * new.count("\n")


def test_a_line_that_is_never_finished_is_refused(path: Path) -> None:
    write(path, line(1) + line(2)[:10])
    source = tail(path)
    events = source.events("")
    read_until(events, 1)
    path.rename(path.with_suffix(".old"))
    write(path, line(3))
    assert numbers(read_until(events, 1)) == [3]
    assert source.rejected == 1
    assert "never finished" in source.last_rejection


def test_a_line_longer_than_any_record_does_not_fill_the_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thalweg.network.sources.lines.MAX_LINE", 100)
    monkeypatch.setattr("thalweg.network.sources.lines.CHUNK", 50)
    write(path, "9" * 350 + "\n" + line(1))
    source = tail(path, follow=False)
    assert numbers(list(source)) == [1]
    assert source.rejected == 4


def test_a_cursor_of_another_source_is_refused(path: Path) -> None:
    write(path, line(1))
    with pytest.raises(DataError, match="data of another source"):
        next(tail(path).events('{"item":3}'))
    with pytest.raises(DataError, match="data of another source"):
        next(tail(path).events("nonsense"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "r.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        tail_source(parse_spec(str(tmp_path / "r.csv")), PLAIN)


def test_mixed_samples_and_labels_can_be_stopped_after_any_event(path: Path) -> None:
    late = '{"id": "k", "y": 2}\n'
    path.write_text((line(1) + late) * 3 + "bad\n" + late + "bad\n")
    found = check_source(lambda: tail(path, follow=False))
    assert found == [((1.0, 0.0), 0, ""), ("k", 2)] * 3 + [("k", 2)]


steps = st.lists(st.sampled_from(["write", "half", "rotate", "read", "restart"]), max_size=25)


@given(steps)
def test_whatever_happens_to_a_file_every_whole_line_comes_once(
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
        for _ in range(number):  # an old file is left after two looks that found nothing
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
            got += take(40)  # whoever rotates twice while nobody reads loses lines: not here
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
