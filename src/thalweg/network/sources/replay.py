"""Existing samples delivered as live data, at a given rate and with optional label delays."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from thalweg.core.errors import ConfigError, require
from thalweg.network.sources.base import Event, SampleFormat, empty_batch
from thalweg.network.sources.base_source import (
    HEARTBEAT_S,
    MAX_BATCH,
    BaseSource,
    decode_cursor,
    encode_cursor,
)
from thalweg.network.sources.records import Record
from thalweg.network.sources.spec import SourceSpec

MIN_WAIT_S = 0.05  # seconds: samples within this time form one batch

SampleFactory = Callable[[], Iterator[tuple[Any, Any]]]
"""All samples with their labels, always in the same order."""


class ReplayRate(NamedTuple):
    """Rate of delivery."""

    speed: float = 0.0  # samples per second; 0: as fast as they are read
    label_delay: float = 0.0  # seconds between a sample and its label
    can_wait: bool = True  # False: samples are lost while nothing reads, as with a sensor


class ReplaySchedule:
    """Delivery times: sample k after k / speed seconds, its label later."""

    def __init__(
        self,
        begin: SampleFactory,
        rate: ReplayRate,
        name: str,
        num_samples: int,
        num_labels: int,
        now: float,
    ) -> None:
        """Continue after `num_samples` samples and `num_labels` labels.

        The next sample is due immediately.
        """
        self.num_samples, self.num_labels = num_samples, num_labels
        self._rate, self._name, self._start, self._first = rate, name, now, num_samples
        self._samples = begin()
        before = enumerate(islice(self._samples, num_samples))
        self._labels = deque((number, y) for number, (_, y) in before if number >= num_labels)
        self._following = next(self._samples, None)

    @property
    def due(self) -> float:
        """Time of the next delivery; infinity: none."""
        return min(self._sample_due, self._label_due)

    def take(self, now: float) -> list[Record]:
        """Samples and labels that are due, with a limit: samples first, then labels."""
        samples = [self._next_sample() for _ in range(MAX_BATCH) if self._sample_due <= now]
        return samples + [self._next_label() for _ in range(MAX_BATCH) if self._label_due <= now]

    def _next_sample(self) -> Record:
        assert self._following is not None
        (x, y), self._following = self._following, next(self._samples, None)
        number, self.num_samples = self.num_samples, self.num_samples + 1
        if self._rate.label_delay:
            self._labels.append((number, y))
            return Record(x, None, None, self._key(number), (self.num_samples, self.num_labels))
        self.num_labels = self.num_samples
        return Record(x, y, None, None, (self.num_samples, self.num_labels))

    def _next_label(self) -> Record:
        number, y = self._labels.popleft()
        self.num_labels = number + 1
        return Record(None, y, None, self._key(number), (self.num_samples, self.num_labels))

    @property
    def _sample_due(self) -> float:
        return math.inf if self._following is None else self._time_of(self.num_samples)

    @property
    def _label_due(self) -> float:
        if not self._labels:
            return math.inf
        return self._time_of(self._labels[0][0]) + self._rate.label_delay

    def _time_of(self, number: int) -> float:
        speed = self._rate.speed
        return self._start + ((number - self._first) / speed if speed else 0.0)

    def _key(self, number: int) -> str:
        return f"{self._name}-{number}"


class ReplaySource(BaseSource):
    """Delivers the samples of `begin` at a given rate."""

    def __init__(
        self,
        begin: SampleFactory,
        sample_format: SampleFormat,
        rate: ReplayRate = ReplayRate(),  # noqa: B008  a constant
        *,
        name: str = "replay",
        heartbeat_s: float = HEARTBEAT_S,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        super().__init__(
            replace(sample_format, classes=None), heartbeat_s
        )  # labels are class numbers
        self.can_wait = rate.can_wait
        self._begin, self._rate, self._name = begin, rate, name
        self._clock, self._wait = clock, wait or self._closed.wait

    def events(self, cursor: str) -> Iterator[Event]:
        parts = decode_cursor(cursor, sample=int, label=int) or {"sample": 0, "label": 0}
        shown = self._clock()
        schedule = ReplaySchedule(
            self._begin, self._rate, self._name, parts["sample"], parts["label"], shown
        )
        while not self._closed.is_set() and schedule.due < math.inf:
            now = self._clock()
            records = schedule.take(now)
            yield from self._validator.events(records, _cursor)
            if records:
                shown = now
                continue
            if now - shown >= self.heartbeat_s:
                shown = now
                yield empty_batch(
                    self.sample_format, _cursor((schedule.num_samples, schedule.num_labels))
                )
            self._wait(min(max(schedule.due - now, MIN_WAIT_S), self.heartbeat_s))


def parse_rate(spec: SourceSpec) -> ReplayRate:
    """The rate given by ``speed=``, ``label_delay=`` and ``wait=``."""
    rate = ReplayRate(
        spec.get_float("speed", 0.0),
        spec.get_float("label_delay", 0.0),
        spec.get_bool("wait", True),
    )
    require(
        bool(rate.speed) or not rate.label_delay,
        f"{spec.text}: label_delay={rate.label_delay:g} needs a speed in samples per second.",
    )
    if not rate.speed and not rate.can_wait:
        raise ConfigError(f"{spec.text}: wait=no needs a speed in samples per second.")
    return rate


def _cursor(mark: tuple[int, int]) -> str:
    return encode_cursor(sample=mark[0], label=mark[1])
