"""By a clock that the test moves: nothing here waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contracts.source import PLAIN, Seen, check_source, labels_of, seen
from thalweg.core.errors import ConfigError
from thalweg.streams.sources import Form, LiveBatch, open_source
from thalweg.streams.sources.replay import Pace, ReplaySource, pace_of
from thalweg.streams.sources.spec import read_spec


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def wait(self, seconds: float) -> None:
        self.now += seconds


def three(number: int = 3) -> Iterator[tuple[Any, int]]:
    for i in range(number):
        yield [i, 0], i % 3


def replay(pace: Pace, clock: Clock, number: int = 3) -> ReplaySource:
    return ReplaySource(
        lambda: three(number), PLAIN, pace, patience=1.0, clock=lambda: clock.now, wait=clock.wait
    )


def timed(pace: Pace, cursor: str = "", number: int = 3) -> list[tuple[float, list[Seen]]]:
    """When what comes."""
    clock = Clock()
    events = replay(pace, clock, number).events(cursor)
    return [(round(clock.now, 6), seen([event])) for event in events if len(event.keys)]


A, B, C = (((float(i), 0.0), i, "") for i in range(3))


def test_without_a_speed_everything_is_there_at_once() -> None:
    assert timed(Pace()) == [(0.0, [A, B, C])]


def test_samples_come_so_many_a_second() -> None:
    assert timed(Pace(speed=0.5)) == [(0.0, [A]), (2.0, [B]), (4.0, [C])]


def test_a_long_wait_has_signs_of_life() -> None:
    clock = Clock()
    events = list(replay(Pace(speed=0.1), clock).events(""))
    assert sum(len(event.keys) == 0 for event in events) == 2 * 9
    assert all(isinstance(event, LiveBatch) for event in events)


def test_labels_come_later() -> None:
    assert timed(Pace(speed=0.5, label_delay=3.0), number=2) == [
        (0.0, [((0.0, 0.0), -1, "replay-0")]),
        (2.0, [((1.0, 0.0), -1, "replay-1")]),
        (3.0, [("replay-0", 0)]),
        (5.0, [("replay-1", 1)]),
    ]


def test_after_a_stop_open_labels_come_first() -> None:
    later = timed(Pace(speed=0.5, label_delay=3.0), '{"label":0,"sample":1}', 2)
    assert later == [
        (0.0, [((1.0, 0.0), -1, "replay-1")]),
        (1.0, [("replay-0", 0)]),
        (3.0, [("replay-1", 1)]),
    ]


@pytest.mark.parametrize("pace", [Pace(), Pace(speed=10.0), Pace(speed=100.0, label_delay=0.35)])
def test_a_reader_may_stop_anywhere(pace: Pace) -> None:
    found = check_source(lambda: replay(pace, Clock(), 150))
    samples = [entry for entry in found if len(entry) == 3]
    labels = [entry for entry in found if len(entry) == 2]
    assert [x for (x, _), _, _ in samples] == list(range(150))
    assert [y for _, y in labels] == ([i % 3 for i in range(150)] if pace.label_delay else [])


def test_fast_samples_come_in_batches() -> None:
    assert len(timed(Pace(speed=1000.0), number=1000)) < 40


def test_a_pace_that_makes_no_sense_is_refused() -> None:
    assert pace_of(read_spec("replay:x?speed=5&label_delay=2&wait=no")) == Pace(5.0, 2.0, False)
    with pytest.raises(ConfigError, match="need a speed"):
        pace_of(read_spec("replay:x?label_delay=2"))
    with pytest.raises(ConfigError, match="needs a speed"):
        pace_of(read_spec("replay:x?wait=no"))


def test_classes_with_numbers_for_names_are_not_mixed_up() -> None:
    named = Form((2,), "float32", 3, classes=("1", "2", "3"))
    assert labels_of(list(ReplaySource(three, named).events(""))) == [0, 1, 2]


def test_one_that_does_not_wait_says_so() -> None:
    assert replay(Pace(5.0), Clock()).can_wait
    assert not replay(Pace(5.0, waits=False), Clock()).can_wait


def test_streams_know_no_data_sets() -> None:
    with pytest.raises(ConfigError, match="no data sets here"):
        open_source("replay:digits", PLAIN)
