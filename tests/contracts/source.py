"""The contract of live sources: no sample twice and none lost, wherever the reader stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from thalweg.network.sources import Event, LateLabels, LiveBatch, SampleFormat, Source

FlatEvent = tuple[Any, ...]
PLAIN = SampleFormat((2,), "float32", 3)


def flatten_events(events: Sequence[Event]) -> list[FlatEvent]:
    """Samples and late labels, one by one, in order."""
    found: list[FlatEvent] = []
    for event in events:
        if isinstance(event, LateLabels):
            found += zip(event.keys, event.labels.tolist(), strict=True)
        else:
            inputs = [tuple(x.ravel().tolist()) for x in event.inputs]
            found += zip(inputs, event.labels.tolist(), event.keys, strict=True)
    return found


def inputs_of(events: Sequence[Event]) -> list[list[float]]:
    return [row for e in events if isinstance(e, LiveBatch) for row in e.inputs.tolist()]


def labels_of(events: Sequence[Event]) -> list[int]:
    return [label for e in events if isinstance(e, LiveBatch) for label in e.labels.tolist()]


def read_until(events: Iterator[Event], number: int, most: int = 2000) -> list[Event]:
    """Events, empty ones left out, until there were so many samples and late labels."""
    found: list[Event] = []
    for event in islice(events, most):
        if len(event.keys):
            found.append(event)
        if len(flatten_events(found)) >= number:
            return found
    raise AssertionError(f"expected {number} samples and labels, got {flatten_events(found)}")


def _by_kind(found: list[FlatEvent]) -> tuple[list[FlatEvent], list[FlatEvent]]:
    """Samples and late labels: each has its order; how they mix may depend on the clock."""
    return [one for one in found if len(one) == 3], [one for one in found if len(one) == 2]


def check_source(make: Callable[[], Source]) -> list[FlatEvent]:
    """Check a source that ends; return its samples and late labels."""
    source = make()
    events = list(source.events(""))
    everything = flatten_events(events)
    assert all(len(e.inputs) == len(e.times) for e in events if isinstance(e, LiveBatch))
    done = 0
    for event in events:
        done += len(event.keys)
        if event.cursor:
            again = make()
            rest = flatten_events(list(again.events(event.cursor)))
            assert _by_kind(rest) == _by_kind(everything[done:]), (
                "reading from a cursor returns exactly the later events"
            )
            again.close()
    source.confirm(events[-1].cursor if events else "")
    source.close()
    source.close()
    return everything
