"""Sources, data and plans for tests of devices."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from thalweg.engine.plan import Plan, make_plan
from thalweg.network.edge.schema import DataSchema
from thalweg.network.sources import Event, LateLabels, LiveBatch

SCHEMA = DataSchema((2,), "float32", 3)


def batch(
    numbers: Sequence[int],
    labels: Sequence[int] | None = None,
    keys: Sequence[str] | None = None,
    cursor: str = "",
) -> LiveBatch:
    """Make a batch in which sample n has input (n, -n), label n mod 3 and key "n" by default."""
    inputs = np.array([[n, -n] for n in numbers], dtype=np.float32).reshape(-1, 2)
    right = np.array([n % 3 for n in numbers] if labels is None else labels, dtype=np.int64)
    names = tuple(map(str, numbers) if keys is None else keys)
    return LiveBatch(inputs, right, np.array(numbers, dtype=np.float64), names, cursor)


class ListSource:
    """A source of listed events; the cursor is the number of events read, so it can resume."""

    rejected, last_rejection, trouble = 0, "", ""

    def __init__(self, events: Sequence[Event], *, can_wait: bool = True, endless: bool = False):
        self._events, self.can_wait, self._endless = events, can_wait, endless
        self.confirmed: list[str] = []
        self._closed = threading.Event()

    def events(self, cursor: str) -> Iterator[Event]:
        for place in range(int(cursor or 0), len(self._events)):
            if self._closed.is_set():
                return
            yield self._events[place]._replace(cursor=str(place + 1))
        while self._endless and not self._closed.wait(0.01):
            yield batch([], cursor=str(len(self._events)))

    def confirm(self, cursor: str) -> None:
        self.confirmed.append(cursor)

    def close(self) -> None:
        self._closed.set()


def late_labels(**labels: int) -> LateLabels:
    """Make late labels: late_labels(_7=1) gives the sample with key "7" the label 1."""
    names = tuple(name.removeprefix("_") for name in labels)
    return LateLabels(names, np.array(list(labels.values()), dtype=np.int64), "")


def plan_for(recipe: str = "fedavg", *overrides: str, scenario: str = "synthetic-logistic") -> Plan:
    own: Any = ["world=live", "capacity=6", "ticks=2", "net=linear", *overrides]
    return make_plan(recipe, scenario, seed=3, rounds=8, overrides=own)
