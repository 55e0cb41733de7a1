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
    """Wait, but not for ever."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def never() -> bool:
    return False


def collected(source: ListSource, inbox: Inbox, ingest: Callable[[], bool] = never) -> Collector:
    """A collector that has read its source to the end."""
    collector = Collector(source, inbox, ingest, max_samples=5)
    collector.start()
    until(lambda: collector.has_ended)
    collector.stop()
    return collector


def test_everything_that_comes_is_stored_and_confirmed_in_order(inbox: Inbox) -> None:
    source = ListSource([batch([0, 1], labels=[-1, 1]), batch([]), batch([2]), late_labels(_0=2)])
    collected(source, inbox)
    inbox.mark(0)
    assert inbox.slots.x[inbox.marked_slots(0), 0].tolist() == [0, 1, 2]
    assert inbox.labels[inbox.marked_slots(0)].tolist() == [2, 1, 2]
    assert source.confirmed == [
        "1",
        "2",
        "3",
        "4",
    ]  # also where the source only found what it refused
    assert inbox.cursor == ("4", 0)


def test_it_goes_on_where_it_was_left(inbox: Inbox) -> None:
    events = [batch([0, 1]), batch([2, 3]), batch([4])]
    collected(ListSource(events[:2]), inbox)
    collected(ListSource(events), inbox)
    assert (inbox.counts.received, inbox.counts.duplicates) == (5, 0)


def test_a_batch_larger_than_the_room_is_stored_in_parts(inbox: Inbox) -> None:
    """Eleven slots, four at a time; the policy takes everything and keeps nothing."""
    lived = 0

    def ingest() -> bool:
        nonlocal lived
        if inbox.num_new < 4:
            return False
        inbox.mark(lived)
        lived += 1
        inbox.commit(b"", lived, inbox.marked_slots(-1))
        return True

    names = [""] * 30
    collected(ListSource([batch(range(30), keys=names), batch([31])]), inbox, ingest)
    assert inbox.counts.received == inbox.counts.evicted + inbox.num_new == 31
    assert inbox.num_new < 4
    assert inbox.cursor == ("2", 0)


def test_after_a_stop_in_the_middle_of_a_batch_the_rest_of_it_comes(inbox: Inbox) -> None:
    events = [batch(range(20), keys=[""] * 20), batch([20])]
    collector = Collector(ListSource(events), inbox, never, max_samples=5)
    collector.start()
    until(lambda: inbox.num_free == 0)
    collector.stop()
    assert inbox.cursor == ("", 11)
    inbox.mark(0)
    first = inbox.slots.x[inbox.marked_slots(0), 0].tolist()
    inbox.commit(b"", 1, inbox.marked_slots(-1))  # room for all
    collected(ListSource(events), inbox)
    inbox.mark(1)
    assert first + inbox.slots.x[inbox.marked_slots(1), 0].tolist() == list(range(21))


def test_a_source_that_can_wait_waits(inbox: Inbox) -> None:
    source = ListSource([batch([n]) for n in range(40)])
    collector = Collector(source, inbox, never, max_samples=5)
    collector.start()
    until(lambda: inbox.num_free == 0)
    collector.stop()
    assert (inbox.counts.received, inbox.counts.lost) == (11, 0)
    assert len(source.confirmed) == 11


def test_of_a_source_that_cannot_wait_the_rest_is_lost_and_counted(inbox: Inbox) -> None:
    source = ListSource([batch([n]) for n in range(40)], can_wait=False, endless=True)
    collector = Collector(source, inbox, never, max_samples=5)
    hold = threading.Event()
    receive = inbox.receive

    def slow(*args: object, **more: object) -> None:
        hold.wait()
        receive(*args, **more)  # type: ignore[arg-type]

    inbox.receive = slow  # type: ignore[method-assign]
    collector.start()
    until(lambda: collector._lost >= 34)  # five in the backlog, and perhaps one on its way
    hold.set()
    until(lambda: inbox.counts.lost + inbox.counts.received == 40)
    collector.stop()
    assert inbox.counts.lost in (34, 35)


def test_a_full_disk_is_tried_again_and_loses_nothing(
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


def test_a_source_that_fails_leaves_a_line_and_what_came_before(inbox: Inbox) -> None:
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
        assert collected(source, inbox).trouble == said
    assert (inbox.counts.received, inbox.counts.duplicates) == (1, 1)


def test_a_policy_that_fails_leaves_a_line(inbox: Inbox) -> None:
    def broken() -> bool:
        raise ValueError("positions out of range")

    collector = Collector(ListSource([batch([0])], endless=True), inbox, broken, max_samples=5)
    collector.start()
    until(lambda: collector.trouble != "")
    collector.stop()
    assert (
        collector.trouble == "samples can no longer be stored: ValueError: positions out of range"
    )


def test_the_backlog_has_room_for_so_many_samples_and_one_event_at_least() -> None:
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
