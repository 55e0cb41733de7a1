"""What has been read from a source and is not on the disk yet: so many samples, and no more."""

from __future__ import annotations

import threading
from collections import deque

from thalweg.network.sources import Event


class Backlog:
    """A queue between two threads, bounded by the number of samples in it."""

    def __init__(self, max_samples: int) -> None:
        self._max_samples, self._events = max_samples, deque[Event]()
        self._changed = threading.Condition()
        self._num = 0
        self._is_closed = False

    def put(self, event: Event, can_wait: bool) -> bool:
        """Add samples or labels; false if there is no room, or if it was closed while it waited for room.

        One event always has room in an empty queue, however large it is.
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
        """The oldest event; none if there is none for so long, or if it was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._is_closed, seconds)
            if self._is_closed or not self._events:
                return None
            event = self._events.popleft()
            self._num -= len(event.labels)
            self._changed.notify_all()
            return event

    def close(self) -> None:
        """Nobody waits any more. What is still in it was not stored, and a source that can delivers it again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
