"""Samples that somebody else holds, handed out as if they came now: so many a second, labels later if you like."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from thalweg.core.errors import ConfigError, require
from thalweg.streams.sources.base import Event, Form, nothing
from thalweg.streams.sources.reading import MOST, PATIENCE, Reading, cursor_parts, cursor_text
from thalweg.streams.sources.records import Record
from thalweg.streams.sources.spec import Spec

BREATH = 0.05  # seconds: what comes within them is one batch

Begin = Callable[[], Iterator[tuple[Any, Any]]]
"""All samples with their labels, always the same ones in the same order."""


class Pace(NamedTuple):
    """How fast samples come."""

    speed: float = 0.0  # samples per second; 0: as fast as they are read
    label_delay: float = 0.0  # seconds from a sample to its label
    waits: bool = True  # or does it go on while nobody reads, as a sensor would?


class Reel:
    """Samples and labels, each when it is due: sample k after k / speed seconds, its label a while later."""

    def __init__(self, begin: Begin, pace: Pace, name: str, at: int, told: int, now: float) -> None:
        """Go on after `at` samples and `told` labels; the next sample comes at once."""
        self.at, self.told = at, told
        self._pace, self._name, self._start, self._first = pace, name, now, at
        self._samples = begin()
        before = enumerate(islice(self._samples, at))
        self._labels = deque((number, y) for number, (_, y) in before if number >= told)
        self._ahead = next(self._samples, None)

    @property
    def due(self) -> float:
        """When something comes; infinity: never more."""
        return min(self._sample_due, self._label_due)

    def take(self, now: float) -> list[Record]:
        """What has come by now, not too much at a time: samples, then labels."""
        samples = [self._sample() for _ in range(MOST) if self._sample_due <= now]
        return samples + [self._label() for _ in range(MOST) if self._label_due <= now]

    def _sample(self) -> Record:
        assert self._ahead is not None
        (x, y), self._ahead = self._ahead, next(self._samples, None)
        number, self.at = self.at, self.at + 1
        if self._pace.label_delay:
            self._labels.append((number, y))
            return Record(x, None, None, self._key(number), (self.at, self.told))
        self.told = self.at
        return Record(x, y, None, None, (self.at, self.told))

    def _label(self) -> Record:
        number, y = self._labels.popleft()
        self.told = number + 1
        return Record(None, y, None, self._key(number), (self.at, self.told))

    @property
    def _sample_due(self) -> float:
        return math.inf if self._ahead is None else self._moment(self.at)

    @property
    def _label_due(self) -> float:
        if not self._labels:
            return math.inf
        return self._moment(self._labels[0][0]) + self._pace.label_delay

    def _moment(self, number: int) -> float:
        speed = self._pace.speed
        return self._start + ((number - self._first) / speed if speed else 0.0)

    def _key(self, number: int) -> str:
        return f"{self._name}-{number}"


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
        super().__init__(replace(form, classes=None), patience)  # labels of ours are numbers
        self.can_wait = pace.waits
        self._begin, self._pace, self._name = begin, pace, name
        self._clock, self._wait = clock, wait or self._closed.wait

    def events(self, cursor: str) -> Iterator[Event]:
        parts = cursor_parts(cursor, sample=int, label=int) or {"sample": 0, "label": 0}
        shown = self._clock()
        reel = Reel(self._begin, self._pace, self._name, parts["sample"], parts["label"], shown)
        while not self._closed.is_set() and reel.due < math.inf:
            now = self._clock()
            records = reel.take(now)
            yield from self._sieve.events(records, _cursor)
            if records:
                shown = now
                continue
            if now - shown >= self.patience:
                shown = now
                yield nothing(self.form, _cursor((reel.at, reel.told)))
            self._wait(min(max(reel.due - now, BREATH), self.patience))


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
