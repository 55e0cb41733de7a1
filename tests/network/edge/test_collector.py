from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from network.edge.doubles import SCHEMA, ListSource, batch, late_labels
from thalweg.core.errors import DataError, RunError
from thalweg.network.edge.backlog import Backlog
from thalweg.network.edge.collector import Collector
from thalweg.network.edge.inbox import Inbox
from thalweg.network.edge.store import Store
from thalweg.network.sources import Event


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    store = Store.open(tmp_path)
    inbox = Inbox(store, SCHEMA, 3, 8)  # eleven slots, of which four may wait for a label
    yield inbox
    inbox.close()
    store.close()


def until(done: Callable[[], bool]) -> None:
    """Wait until `done()` holds; fail after a timeout."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def never() -> bool:
    return False


def run_collector(
    source: ListSource, inbox: Inbox, ingest: Callable[[], bool] = never
) -> Collector:
    """Run a collector until it has read its source to the end."""
    collector = Collector(source, inbox, ingest, max_samples=5)
    collector.start()
    until(lambda: collector.has_ended)
    collector.stop()
    return collector


def test_all_events_are_stored_and_confirmed_in_order(inbox: Inbox) -> None:
    source = ListSource([batch([0, 1], labels=[-1, 1]), batch([]), batch([2]), late_labels(_0=2)])
    run_collector(source, inbox)
    inbox.mark(0)
    assert inbox.slots.x[inbox.marked_slots(0), 0].tolist() == [0, 1, 2]
    assert inbox.labels[inbox.marked_slots(0)].tolist() == [2, 1, 2]
    assert source.confirmed == [
        "1",
        "2",
        "3",
        "4",
    ]  # also for events without valid samples
    assert inbox.cursor == ("4", 0)


def test_collector_resumes_at_the_stored_cursor(inbox: Inbox) -> None:
    events = [batch([0, 1]), batch([2, 3]), batch([4])]
    run_collector(ListSource(events[:2]), inbox)
    run_collector(ListSource(events), inbox)
    assert (inbox.counts.received, inbox.counts.duplicates) == (5, 0)


def test_batch_larger_than_the_free_space_is_stored_in_parts(inbox: Inbox) -> None:
    """Eleven slots, batches of four; the policy takes all samples and keeps none."""
    stream_round = 0

    def ingest() -> bool:
        nonlocal stream_round
        if inbox.num_new < 4:
            return False
        inbox.mark(stream_round)
        stream_round += 1
        inbox.commit(b"", stream_round, inbox.marked_slots(-1))
        return True

    names = [""] * 30
    run_collector(ListSource([batch(range(30), keys=names), batch([31])]), inbox, ingest)
    assert inbox.counts.received == inbox.counts.evicted + inbox.num_new == 31
    assert inbox.num_new < 4
    assert inbox.cursor == ("2", 0)


def test_rest_of_a_batch_is_read_after_a_stop(inbox: Inbox) -> None:
    events = [batch(range(20), keys=[""] * 20), batch([20])]
    collector = Collector(ListSource(events), inbox, never, max_samples=5)
    collector.start()
    until(lambda: inbox.num_free == 0)
    collector.stop()
    assert inbox.cursor == ("", 11)
    inbox.mark(0)
    first = inbox.slots.x[inbox.marked_slots(0), 0].tolist()
    inbox.commit(b"", 1, inbox.marked_slots(-1))  # frees all slots
    run_collector(ListSource(events), inbox)
    inbox.mark(1)
    assert first + inbox.slots.x[inbox.marked_slots(1), 0].tolist() == list(range(21))


def test_source_that_can_wait_is_paused_when_the_inbox_is_full(inbox: Inbox) -> None:
    source = ListSource([batch([n]) for n in range(40)])
    collector = Collector(source, inbox, never, max_samples=5)
    collector.start()
    until(lambda: inbox.num_free == 0)
    collector.stop()
    assert (inbox.counts.received, inbox.counts.lost) == (11, 0)
    assert len(source.confirmed) == 11


def test_samples_of_a_source_that_cannot_wait_are_dropped_and_counted(inbox: Inbox) -> None:
    source = ListSource([batch([n]) for n in range(40)], can_wait=False, endless=True)
    collector = Collector(source, inbox, never, max_samples=5)
    hold = threading.Event()
    receive = inbox.receive

    def slow(*args: object, **more: object) -> None:
        hold.wait()
        receive(*args, **more)  # type: ignore[arg-type]

    inbox.receive = slow  # type: ignore[method-assign]
    collector.start()
    until(lambda: collector._lost >= 34)  # five in the backlog, and possibly one in transit
    hold.set()
    until(lambda: inbox.counts.lost + inbox.counts.received == 40)
    collector.stop()
    assert inbox.counts.lost in (34, 35)


def test_full_disk_is_retried_without_losing_samples(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thalweg.network.edge.collector.RETRY_S", 0.001)
    failures, receive = iter(range(3)), inbox.receive
    seen: list[str] = []

    def sometimes(*args: object, **more: object) -> None:
        if next(failures, None) is not None:
            raise RunError("the disk is full.")
        receive(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(inbox, "receive", sometimes)
    source = ListSource([batch([0, 1]), batch([2])])
    collector = Collector(
        source, inbox, never, max_samples=5, on_progress=lambda: seen.append(collector.trouble)
    )
    collector.start()
    until(lambda: collector.has_ended)
    collector.stop()
    assert (inbox.counts.received, collector.trouble) == (3, "")
    assert "the disk is full." in seen


def test_failing_source_is_reported_and_earlier_samples_are_kept(inbox: Inbox) -> None:
    class Failing(ListSource):
        def events(self, cursor: str) -> Iterator[Event]:
            yield batch([0])
            raise self.error

    for error, said in (
        (DataError("the file is gone."), "the file is gone."),
        (KeyError("x"), "the source failed: KeyError: 'x'"),
    ):
        source = Failing([])
        source.error = error  # type: ignore[attr-defined]
        assert run_collector(source, inbox).trouble == said
    assert (inbox.counts.received, inbox.counts.duplicates) == (1, 1)


def test_failing_policy_is_reported(inbox: Inbox) -> None:
    def broken() -> bool:
        raise ValueError("positions out of range")

    collector = Collector(ListSource([batch([0])], endless=True), inbox, broken, max_samples=5)
    collector.start()
    until(lambda: collector.trouble != "")
    collector.stop()
    assert (
        collector.trouble == "samples can no longer be stored: ValueError: positions out of range"
    )


def test_backlog_limits_samples_but_accepts_at_least_one_event() -> None:
    backlog = Backlog(4)
    assert backlog.put(batch(range(9)), can_wait=False)
    assert not backlog.put(batch([9]), can_wait=False)
    first = backlog.take(0)
    assert first is not None
    assert len(first.labels) == 9
    assert all(backlog.put(batch([n, n]), can_wait=False) for n in range(2))
    assert not backlog.put(batch([3]), can_wait=False)
    backlog.close()
    assert not backlog.put(batch([4]), can_wait=True)
    assert backlog.take(0) is None
