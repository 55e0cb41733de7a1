"""Samples that somebody else holds, handed out as if they came now: so many a second, labels later if you like."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from thalweg.core.errors import ConfigError, require
from thalweg.streams.sources.base import Event, Form, nothing
from thalweg.streams.sources.reading import MOST, PATIENCE, Reading, cursor_parts, cursor_text
from thalweg.streams.sources.records import Record
from thalweg.streams.sources.spec import Spec

Begin = Callable[[], Iterator[tuple[Any, Any]]]
"""All samples with their labels, always the same ones in the same order."""


class Pace(NamedTuple):
    """How fast samples come."""

    speed: float = 0.0  # samples per second; 0: as fast as they are read
    label_delay: float = 0.0  # seconds from a sample to its label
    waits: bool = True  # or does it go on while nobody reads, as a sensor would?


class Due(NamedTuple):
    """When a sample and its label come, by number; the first of this reading comes at once."""

    begin: float
    first: int
    pace: Pace

    def sample(self, number: int) -> float:
        speed = self.pace.speed
        return self.begin + (number - self.first) / speed if speed else self.begin

    def label(self, number: int) -> float:
        return self.sample(number) + self.pace.label_delay


class ReplaySource(Reading):
    """What `begin` has, at a pace. Streams know no data sets: whoever has one brings the samples."""

    def __init__(
        self,
        begin: Begin,
        form: Form,
        pace: Pace = Pace(),  # noqa: B008  a constant
        *,
        name: str = "replay",
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        super().__init__(form, patience)
        self.can_wait = pace.waits
        self._begin, self._pace, self._name = begin, pace, name
        self._clock, self._wait = clock, wait or self._closed.wait

    def events(self, cursor: str) -> Iterator[Event]:
        parts = cursor_parts(cursor, sample=int, label=int) or {"sample": 0, "label": 0}
        at, told = parts["sample"], parts["label"]
        due, samples = Due(self._clock(), at, self._pace), self._begin()
        before = islice(samples, at)
        open_labels = deque((i, y) for i, (_, y) in enumerate(before) if i >= told)
        ahead = next(samples, None)
        shown = self._clock()
        while not self._closed.is_set() and (ahead is not None or open_labels):
            now, records = self._clock(), []
            while len(records) < MOST:
                label_at = due.label(open_labels[0][0]) if open_labels else float("inf")
                sample_at = due.sample(at) if ahead is not None else float("inf")
                if min(label_at, sample_at) > now:
                    break
                if label_at <= sample_at:
                    number, y = open_labels.popleft()
                    told = number + 1
                    records.append(Record(None, y, None, self._key(number), (at, told)))
                    continue
                assert ahead is not None
                x, y = ahead
                if self._pace.label_delay:
                    open_labels.append((at, y))
                    records.append(Record(x, None, None, self._key(at), (at + 1, told)))
                else:
                    told = at + 1
                    records.append(Record(x, y, None, None, (at + 1, told)))
                at, ahead = at + 1, next(samples, None)
            yield from self._sieve.events(records, _cursor)
            if records:
                shown = self._clock()
                continue
            if self._clock() - shown >= self.patience:
                shown = self._clock()
                yield nothing(self.form, _cursor((at, told)))
            self._wait(max(min(label_at, sample_at, now + self.patience) - now, 0.001))

    def _key(self, number: int) -> str:
        return f"{self._name}-{number}"


def pace_of(spec: Spec) -> Pace:
    """What ``speed=``, ``label_delay=`` and ``wait=`` say."""
    pace = Pace(spec.number("speed", 0.0), spec.number("label_delay", 0.0), spec.flag("wait", True))
    require(
        bool(pace.speed) or not pace.label_delay,
        f"{spec.text}: labels that come {pace.label_delay:g} seconds later need a speed, in samples per second.",
    )
    if not pace.speed and not pace.waits:
        raise ConfigError(f"{spec.text}: a source that does not wait needs a speed.")
    return pace


def _cursor(mark: tuple[int, int]) -> str:
    return cursor_text(sample=mark[0], label=mark[1])
