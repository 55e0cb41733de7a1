"""A bounded queue of samples that were read from a source and are not stored yet."""

from __future__ import annotations

import threading
from collections import deque

from thalweg.network.sources import Event


class Backlog:
    """A queue between two threads, bounded by its number of samples."""

    def __init__(self, max_samples: int) -> None:
        self._max_samples, self._events = max_samples, deque[Event]()
        self._changed = threading.Condition()
        self._num = 0
        self._is_closed = False

    def put(self, event: Event, can_wait: bool) -> bool:
        """Add samples or labels; False if there is no room or the queue was closed while waiting.

        An empty queue accepts one event of any size.
        """
        with self._changed:
            while (
                not self._is_closed
                and self._num
                and self._num + len(event.labels) > self._max_samples
            ):
                if not can_wait:
                    return False
                self._changed.wait()
            if self._is_closed:
                return False
            self._events.append(event)
            self._num += len(event.labels)
            self._changed.notify_all()
            return True

    def take(self, seconds: float) -> Event | None:
        """The oldest event; None after a timeout or if the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._is_closed, seconds)
            if self._is_closed or not self._events:
                return None
            event = self._events.popleft()
            self._num -= len(event.labels)
            self._changed.notify_all()
            return event

    def close(self) -> None:
        """Close the queue. Events in it are not stored.

        A source with a cursor delivers them again.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
