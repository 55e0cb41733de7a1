from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contracts.source import PLAIN, check_source, flatten_events, labels_of, read_until
from thalweg.core.errors import ConfigError, DataError
from thalweg.network.sources import open_source
from thalweg.network.sources.iterators import IteratorSource

MODULE = """
def pairs():
    yield [1, 2], 0
    yield {"x": [3, 4], "y": 1, "id": "k"}
    yield ([5, 6], 2, 60)
    yield "nonsense"

def counted(start=0):
    for number in range(start, 200):
        yield [number, 0], number % 3

def fails():
    yield [1, 2], 0
    raise OSError("the sensor is unplugged")

number = 3

def no_iterator():
    return 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine_iterators.py").write_text(MODULE)
    return tmp_path / "mine_iterators.py"


def test_pairs_triples_and_objects_are_read_as_samples(file: Path) -> None:
    source = open_source(f"{file}:pairs", PLAIN)
    events = list(source.events(""))
    assert flatten_events(events) == [
        ((1.0, 2.0), 0, ""),
        ((3.0, 4.0), 1, "k"),
        ((5.0, 6.0), 2, ""),
    ]
    assert source.rejected == 1
    assert {event.cursor for event in events} == {""}  # it cannot resume, so it starts over


def test_function_with_a_start_argument_resumes(file: Path) -> None:
    found = check_source(lambda: open_source(f"{file}:counted", PLAIN))
    assert [x for (x, _), _, _ in found] == list(range(200))


def test_failing_iterator_is_read_up_to_the_error(file: Path) -> None:
    events = open_source(f"{file}:fails", PLAIN).events("")
    assert labels_of([next(events)]) == [0]
    with pytest.raises(DataError, match="the sensor is unplugged"):
        list(events)


def test_non_functions_and_non_iterators_are_rejected(file: Path) -> None:
    with pytest.raises(ConfigError, match="expected a function"):
        open_source(f"{file}:number", PLAIN)
    with pytest.raises(ConfigError, match="expected a function"):
        open_source(f"{file}:nothing", PLAIN)
    with pytest.raises(DataError, match="expected an iterator, got int"):
        list(open_source(f"{file}:no_iterator", PLAIN).events(""))


def test_blocking_iterator_does_not_block_its_reader() -> None:
    go = threading.Event()

    def slow(start: int) -> Iterator[Any]:
        go.wait(60)
        yield [1, 2], 0

    source = IteratorSource(slow, PLAIN, heartbeat_s=0.01)
    events = source.events("")
    assert [len(next(events).keys) for _ in range(3)] == [0, 0, 0]
    go.set()
    assert labels_of(read_until(events, 1)) == [0]


def test_endless_iterator_waits_for_its_reader_and_stops_with_it() -> None:
    drawn = []

    def endless(start: int) -> Iterator[Any]:
        while True:
            drawn.append(1)
            yield [1, 2], 0

    source = IteratorSource(endless, PLAIN, heartbeat_s=0.01)
    events = source.events("")
    read_until(events, 100)
    source.close()
    assert list(events) == []
    assert len(drawn) < 1000
