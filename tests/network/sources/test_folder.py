"""Tests that every file in a folder is read once, in any order and across restarts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.source import PLAIN, check_source, labels_of, read_until
from thalweg.network.sources.folder import FolderSource, FoundFile
from thalweg.network.sources.records import BrokenRecord, Record


def numbers_in(found: FoundFile, done: int) -> Iterator[Record | BrokenRecord]:
    """Read labels separated by spaces; other words are broken records."""
    for at, word in list(enumerate(found.path.read_text().split(), 1))[done:]:
        yield (
            Record([0, 0], int(word), None, found.name, at)
            if word.isdigit()
            else BrokenRecord(word, at)
        )


def folder_source(
    folder: Path, follow: bool = True, clock: Callable[[], float] = time.time
) -> FolderSource:
    return FolderSource(
        folder,
        PLAIN,
        numbers_in,
        (".txt",),
        follow=follow,
        heartbeat_s=0.01,
        poll=0.001,
        settled=0.0,
        clock=clock,
    )


def write(path: Path, text: str, written: float | None = None) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    if written is not None:
        os.utime(path, (written, written))


def test_files_are_read_by_modification_time_then_name(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "0", 200)
    write(tmp_path / "sub" / "a.txt", "1", 200)
    write(tmp_path / "c.txt", "2", 100)
    write(tmp_path / ".hidden.txt", "0", 100)
    write(tmp_path / "notes.md", "0", 100)
    found = check_source(lambda: folder_source(tmp_path, follow=False))
    assert [(label, key) for _, label, key in found] == [
        (2, "c.txt"),
        (0, "b.txt"),
        (1, "sub/a.txt"),
    ]


def test_folder_source_resumes_in_the_middle_of_a_file(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "0 1 2 " * 50, 100)
    write(tmp_path / "b.txt", "bad 2 bad", 200)
    found = check_source(lambda: folder_source(tmp_path, follow=False))
    assert [label for _, label, _ in found] == [0, 1, 2] * 50 + [2]


def test_older_file_that_arrives_later_is_read(tmp_path: Path) -> None:
    write(tmp_path / "new.txt", "1", 2000)
    events = folder_source(tmp_path).events("")
    first = read_until(events, 1)
    write(tmp_path / "old.txt", "2", 1000)
    assert labels_of(read_until(events, 1)) == [2]
    again = folder_source(tmp_path, follow=False)
    assert labels_of(list(again.events(first[-1].cursor))) == [2]


def test_rewritten_file_is_read_again(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "1")
    events = folder_source(tmp_path).events("")
    assert labels_of(read_until(events, 1)) == [1]
    write(tmp_path / "a.new", "2")
    (tmp_path / "a.new").rename(tmp_path / "a.txt")
    assert labels_of(read_until(events, 1)) == [2]


def test_file_is_read_after_it_has_settled(tmp_path: Path) -> None:
    now = [os.stat(tmp_path).st_mtime + 3600]
    source = FolderSource(
        tmp_path,
        PLAIN,
        numbers_in,
        (".txt",),
        heartbeat_s=0.001,
        poll=0.001,
        settled=7200,
        clock=lambda: now[0],
    )
    write(tmp_path / "a.txt", "1")
    events = source.events("")
    assert [len(next(events).keys) for _ in range(3)] == [0, 0, 0]
    now[0] += 7200
    assert labels_of(read_until(events, 1)) == [1]


def test_missing_folder_is_waited_for(tmp_path: Path) -> None:
    source = folder_source(tmp_path / "later")
    events = source.events("")
    next(events)
    assert "No such file" in source.trouble
    write(tmp_path / "later" / "a.txt", "1")
    assert labels_of(read_until(events, 1)) == [1]
    assert source.trouble == ""


def test_single_file_can_be_a_source(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "1 2")
    write(tmp_path / "b.txt", "0")
    found = check_source(lambda: folder_source(tmp_path / "a.txt", follow=False))
    assert [label for _, label, _ in found] == [1, 2]


def test_cursor_is_unchanged_while_no_file_arrives(tmp_path: Path) -> None:
    events = folder_source(tmp_path).events("")
    assert {next(events).cursor for _ in range(5)} == {""}
    write(tmp_path / "a.txt", "1")
    (event,) = read_until(events, 1)
    assert {next(events).cursor for _ in range(5)} == {event.cursor}


def test_file_is_read_although_file_times_lag_behind_the_clock(tmp_path: Path) -> None:
    events = folder_source(tmp_path, clock=lambda: time.time() + 0.01).events("")
    next(events)
    write(tmp_path / "a.txt", "1")
    assert labels_of(read_until(events, 1)) == [1]


def test_file_is_read_although_the_time_of_its_folder_is_unchanged(tmp_path: Path) -> None:
    same = time.time() + 3600  # two changes within one tick of the file system's clock
    os.utime(tmp_path, (same, same))
    events = folder_source(tmp_path).events("")
    next(events)
    write(tmp_path / "a.txt", "1")
    os.utime(tmp_path, (same, same))
    assert labels_of(read_until(events, 1)) == [1]


@pytest.mark.parametrize("number", [1, 3])
def test_new_files_are_read_continuously(tmp_path: Path, number: int) -> None:
    source = folder_source(tmp_path)
    events = source.events("")
    for i in range(5):
        for j in range(number):
            write(tmp_path / f"{i}-{j}.txt", str(i % 3))
        assert labels_of(read_until(events, number)) == [i % 3] * number
    source.close()
    assert list(events) == []
