"""A device process for kill tests: ``killable_device.py collect|client FOLDER CAPACITY [SOURCE]``.

Sample n has the input (n, -n) and no key, so a sample that is read twice is stored twice. Every
fourth sample gets its label later.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from thalweg.network.edge.inbox import Inbox
from thalweg.network.edge.schema import DataSchema
from thalweg.network.edge.store import Store
from thalweg.network.sources import Event, LateLabels, LiveBatch, Source, open_source

SCHEMA = DataSchema((2,), "float32", 3)


def event_at(number: int) -> Event:
    """Return a deterministic event: a batch of 1 to 7 samples, or late labels."""
    first, waits = num_samples_before(number), number % 4 == 0
    if number % 4 == 1:
        names = tuple(f"n{n}" for n in range(num_samples_before(number - 1), first))
        return LateLabels(names, np.ones(len(names), dtype=np.int64), str(number + 1))
    numbers = np.arange(first, num_samples_before(number + 1))
    names = tuple(f"n{n}" if waits else "" for n in numbers)
    labels = np.full(len(numbers), -1) if waits else numbers % 3
    inputs = np.stack([numbers, -numbers], axis=1).astype(np.float32)
    return LiveBatch(inputs, labels, numbers.astype(float), names, str(number + 1))


def num_samples_before(number: int) -> int:
    """Count the samples in all events before this one; the sizes have a period of 28 events."""
    periods, rest = divmod(number, 28)
    return periods * sum(map(num_samples_of, range(28))) + sum(map(num_samples_of, range(rest)))


def num_samples_of(number: int) -> int:
    return 0 if number % 4 == 1 else 1 + number * 5 % 7


class EndlessSource:
    """A source that resumes at any cursor, never ends and never waits."""

    can_wait, rejected, last_rejection, trouble = True, 0, "", ""

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
    """Run only the inbox, with a memory that keeps the newest samples."""
    from thalweg.network.edge.collector import Collector

    source: Source = (
        open_source(spec, SCHEMA.sample_format, name=store.identity) if spec else EndlessSource()
    )

    inbox = Inbox(store, SCHEMA, capacity, queue=40)
    stream_round = int.from_bytes(store.state() or b"", "big")

    def ingest() -> bool:
        nonlocal stream_round
        if inbox.num_new + len(inbox.marked_slots(stream_round)) < 8:
            return False
        inbox.mark(stream_round)
        stream_round += 1
        rows = inbox._table.slots_before(stream_round)
        newest = rows[np.argsort(inbox.slots.x[rows, 0])][-capacity:]
        inbox.commit(stream_round.to_bytes(4, "big"), stream_round, newest)
        return True

    Collector(source, inbox, ingest, max_samples=20).start()
    if spec:
        print("reading", flush=True)


def client(store: Store, capacity: int) -> None:
    """Run the whole client with one training request after the other."""
    from contracts.examples import train_request_for
    from network.edge.doubles import plan_for
    from thalweg.network.edge.live_client import LiveClient
    from thalweg.network.edge.live_node import LiveSizes
    from thalweg.network.wire import to_bytes

    sizes = LiveSizes(capacity, queue=40, batch=8)
    device = LiveClient(store, plan_for(), 0, SCHEMA, EndlessSource(), sizes)
    device.start()
    params = np.zeros(device.net.num_params, dtype=np.float32)
    for rnd in range(device.node.state.last_round + 1, 100_000):
        device.handle(to_bytes(train_request_for(rnd, 0, params), device.node.message_schema))


if __name__ == "__main__":
    kind, folder, capacity, *spec = sys.argv[1:]
    {"collect": collect, "client": client}[kind](Store.open(Path(folder)), int(capacity), *spec)
    threading.Event().wait()
