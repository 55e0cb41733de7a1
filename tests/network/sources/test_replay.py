"""Tests of replay sources with a simulated clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contracts.source import PLAIN, FlatEvent, check_source, flatten_events, labels_of
from thalweg.core.errors import ConfigError
from thalweg.network.sources import LiveBatch, SampleFormat, open_source
from thalweg.network.sources.replay import ReplayRate, ReplaySource, parse_rate
from thalweg.network.sources.spec import parse_spec


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def wait(self, seconds: float) -> None:
        self.now += seconds


def make_samples(number: int = 3) -> Iterator[tuple[Any, int]]:
    for i in range(number):
        yield [i, 0], i % 3


def replay(rate: ReplayRate, clock: Clock, number: int = 3) -> ReplaySource:
    return ReplaySource(
        lambda: make_samples(number),
        PLAIN,
        rate,
        heartbeat_s=1.0,
        clock=lambda: clock.now,
        wait=clock.wait,
    )


def timed_events(
    rate: ReplayRate, cursor: str = "", number: int = 3
) -> list[tuple[float, list[FlatEvent]]]:
    """Return the events with the times at which they arrive."""
    clock = Clock()
    events = replay(rate, clock, number).events(cursor)
    return [(round(clock.now, 6), flatten_events([event])) for event in events if len(event.keys)]


A, B, C = (((float(i), 0.0), i, "") for i in range(3))


def test_replay_without_speed_delivers_all_samples_at_once() -> None:
    assert timed_events(ReplayRate()) == [(0.0, [A, B, C])]


def test_replay_speed_is_samples_per_second() -> None:
    assert timed_events(ReplayRate(speed=0.5)) == [(0.0, [A]), (2.0, [B]), (4.0, [C])]


def test_long_replay_pause_sends_heartbeats() -> None:
    clock = Clock()
    events = list(replay(ReplayRate(speed=0.1), clock).events(""))
    assert sum(len(event.keys) == 0 for event in events) == 2 * 9
    assert all(isinstance(event, LiveBatch) for event in events)


def test_replay_labels_arrive_after_the_delay() -> None:
    assert timed_events(ReplayRate(speed=0.5, label_delay=3.0), number=2) == [
        (0.0, [((0.0, 0.0), -1, "replay-0")]),
        (2.0, [((1.0, 0.0), -1, "replay-1")]),
        (3.0, [("replay-0", 0)]),
        (5.0, [("replay-1", 1)]),
    ]


def test_pending_labels_come_first_after_a_restart() -> None:
    later = timed_events(ReplayRate(speed=0.5, label_delay=3.0), '{"label":0,"sample":1}', 2)
    assert later == [
        (0.0, [((1.0, 0.0), -1, "replay-1")]),
        (1.0, [("replay-0", 0)]),
        (3.0, [("replay-1", 1)]),
    ]


@pytest.mark.parametrize(
    "rate", [ReplayRate(), ReplayRate(speed=10.0), ReplayRate(speed=100.0, label_delay=0.35)]
)
def test_replay_resumes_at_any_event(rate: ReplayRate) -> None:
    found = check_source(lambda: replay(rate, Clock(), 150))
    samples = [entry for entry in found if len(entry) == 3]
    labels = [entry for entry in found if len(entry) == 2]
    assert [x for (x, _), _, _ in samples] == list(range(150))
    assert [y for _, y in labels] == ([i % 3 for i in range(150)] if rate.label_delay else [])


def test_fast_replay_delivers_batches() -> None:
    assert len(timed_events(ReplayRate(speed=1000.0), number=1000)) < 40


def test_invalid_replay_rates_are_rejected() -> None:
    assert parse_rate(parse_spec("replay:x?speed=5&label_delay=2&wait=no")) == ReplayRate(
        5.0, 2.0, False
    )
    with pytest.raises(ConfigError, match="needs a speed"):
        parse_rate(parse_spec("replay:x?label_delay=2"))
    with pytest.raises(ConfigError, match="needs a speed"):
        parse_rate(parse_spec("replay:x?wait=no"))


def test_replay_labels_are_indices_even_if_class_names_are_numbers() -> None:
    named = SampleFormat((2,), "float32", 3, classes=("1", "2", "3"))
    assert labels_of(list(ReplaySource(make_samples, named).events(""))) == [0, 1, 2]


def test_replay_source_reports_whether_it_can_wait() -> None:
    assert replay(ReplayRate(5.0), Clock()).can_wait
    assert not replay(ReplayRate(5.0, can_wait=False), Clock()).can_wait


def test_replay_without_data_sets_is_rejected() -> None:
    with pytest.raises(ConfigError, match="replay sources need data sets"):
        open_source("replay:digits", PLAIN)
