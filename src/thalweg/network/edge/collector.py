"""Reads a source as long as the device runs, and stores its samples."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from thalweg.core.errors import RunError, ThalwegError
from thalweg.network.edge.backlog import Backlog
from thalweg.network.edge.inbox import Inbox
from thalweg.network.sources import Event, LateLabels, LiveBatch, Source

POLL_S = 0.2  # seconds between two checks for work
RETRY_S = 1.0  # seconds until the next attempt after a disk error

T = TypeVar("T")


class Collector:
    """Two threads: one reads the source, the other stores samples and updates the memory.

    A source that can wait is read no faster than samples are stored. A source that cannot wait is
    read immediately; samples that do not fit into the backlog are lost and counted. Writing to a
    full disk is retried, and samples in the backlog are kept meanwhile.
    """

    def __init__(
        self,
        source: Source,
        inbox: Inbox,
        ingest: Callable[[], bool],
        max_samples: int,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        """`ingest` passes a batch to the memory policy if there is one.

        `on_progress` is called regularly.
        """
        self._source, self._inbox, self._ingest, self._on_progress = (
            source,
            inbox,
            ingest,
            on_progress,
        )
        self._backlog = Backlog(max_samples)
        self._stopping = threading.Event()
        self._lost = 0  # not yet counted on disk
        self._count_lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._read, name="thalweg-read", daemon=True),
            threading.Thread(target=self._store_all, name="thalweg-store", daemon=True),
        ]
        self._failure = ""
        self._is_exhausted = False  # read to its end
        self._trouble = ""
        self.has_ended = False  # the source has ended and all samples are stored

    @property
    def trouble(self) -> str:
        """Description of the current problem in one line; empty if there is none."""
        return self._failure or self._trouble or self._source.trouble

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float = 10.0) -> bool:
        """Stop reading.

        Samples that are not stored yet are delivered again by a source with a cursor.

        True if both threads have ended within the timeout.
        """
        self._stopping.set()
        self._backlog.close()
        self._source.close()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    # --- first thread: from the source to the backlog ---

    def _read(self) -> None:
        cursor, ahead = self._inbox.cursor
        try:
            for event in self._source.events(cursor):
                if self._stopping.is_set():
                    return
                if ahead and isinstance(event, LiveBatch):
                    ahead, event = _skip_stored(event, ahead)
                if not len(event.labels) and (ahead or event.cursor == cursor):
                    continue  # heartbeat
                cursor = event.cursor
                if not self._backlog.put(event, self._source.can_wait):
                    self._add_lost(len(event.labels))
        except Exception as error:  # user-defined sources may raise anything
            self._failure = _describe_error(error, "the source failed")
        finally:
            self._is_exhausted = True

    def _add_lost(self, number: int) -> None:
        if not self._stopping.is_set():
            with self._count_lock:
                self._lost += number

    # --- second thread: from the backlog to the disk ---

    def _store_all(self) -> None:
        try:
            while not self._stopping.is_set():
                is_read = self._is_exhausted  # checked before the queue is read, to avoid a race
                event = left = self._backlog.take(POLL_S)
                while left is not None and not self._stopping.is_set():
                    left = self._retry(partial(self._store_some, left))
                    self._on_progress()
                self._retry(self._count_lost)
                self._retry(self._ingest_all)
                if is_read and event is None and not self._stopping.is_set():
                    self.has_ended = True
                self._on_progress()
        except Exception as error:
            self._failure = _describe_error(error, "samples can no longer be stored")
            self._backlog.close()

    def _retry(self, work: Callable[[], T]) -> T | None:
        """Retry an operation until there is space on the disk; None if stopped before."""
        while not self._stopping.is_set():
            try:
                result = work()
                self._trouble = ""
                return result
            except RunError as error:
                self._trouble = str(error)
                self._on_progress()
                self._stopping.wait(RETRY_S)
        return None

    def _store_some(self, event: Event) -> Event | None:
        """Store as many samples as possible; returns the rest."""
        if isinstance(event, LateLabels):
            self._inbox.add_labels(event)
            self._confirm(event)
            return None
        room, number = self._inbox.room, len(event.labels)
        if room == 0 < number:
            if not self._ingest_all():
                self._stopping.wait(POLL_S)
            return event
        self._inbox.receive(_slice_batch(event, 0, room), is_last=number <= room)
        if number > room:
            return _slice_batch(event, room, number)
        self._confirm(event)
        return None

    def _confirm(self, event: Event) -> None:
        """Confirm to the source that all samples of an event are stored."""
        if event.cursor:
            self._source.confirm(event.cursor)

    def _ingest_all(self) -> bool:
        """Pass batches to the memory policy until there are none; True if there was one."""
        some = False
        while not self._stopping.is_set() and self._ingest():
            some = True
        return some

    def _count_lost(self) -> None:
        with self._count_lock:
            lost = self._lost
        if lost:
            self._inbox.add_lost(lost)
            with self._count_lock:
                self._lost -= lost


def _describe_error(error: Exception, what: str) -> str:
    """Describe an error in one line."""
    if isinstance(error, ThalwegError):
        return str(error)
    return f"{what}: {type(error).__name__}: {error}"


def _slice_batch(batch: LiveBatch, first: int, last: int) -> LiveBatch:
    inputs, labels, times, keys, cursor = batch
    some = slice(first, last)
    return LiveBatch(inputs[some], labels[some], times[some], keys[some], cursor)


def _skip_stored(batch: LiveBatch, ahead: int) -> tuple[int, LiveBatch]:
    """The samples that are not stored yet, and the number of stored samples still to skip."""
    skipped = min(ahead, len(batch.labels))
    return ahead - skipped, _slice_batch(batch, skipped, len(batch.labels))
