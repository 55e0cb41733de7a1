"""A device that is going to be killed: ``python killed.py collect|client FOLDER CAPACITY [SOURCE]``.

Sample n has the input (n, -n) and no name, so that whoever reads one twice has it twice. Every fourth waits for its
label, which comes a little later.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from thalweg.edge.blank import Blank
from thalweg.edge.inbox import Inbox
from thalweg.edge.store import Store
from thalweg.streams.sources import Event, LateLabels, LiveBatch, Source, open_source

BLANK = Blank((2,), "float32", 3)


def event_at(number: int) -> Event:
    """Event after event, all known beforehand: batches of 1 to 7 samples, then the labels of those that wait."""
    first, waits = first_of(number), number % 4 == 0
    if number % 4 == 1:
        names = tuple(f"n{n}" for n in range(first_of(number - 1), first))
        return LateLabels(names, np.ones(len(names), dtype=np.int64), str(number + 1))
    numbers = np.arange(first, first_of(number + 1))
    names = tuple(f"n{n}" if waits else "" for n in numbers)
    labels = np.full(len(numbers), -1) if waits else numbers % 3
    inputs = np.stack([numbers, -numbers], axis=1).astype(np.float32)
    return LiveBatch(inputs, labels, numbers.astype(float), names, str(number + 1))


def first_of(number: int) -> int:
    """Samples in all events before one."""
    return sum(0 if k % 4 == 1 else 1 + k * 5 % 7 for k in range(number))


class Endless:
    """Goes on anywhere, never ends, and is never slow."""

    can_wait, refused, last_reason, trouble = True, 0, "", ""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def events(self, cursor: str) -> Iterator[Event]:
        number = int(cursor or 0)
        while not self._closed.is_set():
            yield event_at(number)
            number += 1

    def confirm(self, cursor: str) -> None:
        print(cursor, flush=True)

    def close(self) -> None:
        self._closed.set()


def collect(store: Store, capacity: int, spec: str = "") -> None:
    """The inbox alone, with a memory that keeps the newest."""
    from thalweg.edge.collector import Collector

    source: Source = open_source(spec, BLANK.form, name=store.identity) if spec else Endless()

    inbox = Inbox(store, BLANK, capacity, queue=40)
    lived = int.from_bytes(store.state() or b"", "big")

    def absorb() -> bool:
        nonlocal lived
        if inbox.num_new + len(inbox.marked(lived)) < 8:
            return False
        inbox.mark(lived)
        lived += 1
        rows = inbox._table.before(lived)
        newest = rows[np.argsort(inbox.slots.x[rows, 0])][-capacity:]
        inbox.commit(lived.to_bytes(4, "big"), lived, newest)
        return True

    Collector(source, inbox, absorb, most=20).start()
    if spec:
        print("reading", flush=True)


def client(store: Store, capacity: int) -> None:
    """All of it, and an order after the other."""
    from contracts.examples import order_for
    from edge.doubles import plan_for
    from thalweg.edge.live_client import LiveClient
    from thalweg.edge.live_node import LiveSizes
    from thalweg.recipes.wire import to_bytes

    sizes = LiveSizes(capacity, queue=40, batch=8)
    device = LiveClient(store, plan_for(), 0, BLANK, Endless(), sizes)
    device.start()
    params = np.zeros(device.num_params, dtype=np.float32)
    for rnd in range(device.node.state.trained + 1, 100_000):
        device.handle(to_bytes(order_for(rnd, 0, params), device.node.terms))


if __name__ == "__main__":
    kind, folder, capacity, *spec = sys.argv[1:]
    {"collect": collect, "client": client}[kind](Store.open(Path(folder)), int(capacity), *spec)
    threading.Event().wait()
