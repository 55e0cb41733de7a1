"""Delays: when to restart a process that ended, and how long to wait between two polls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

IDLE_FRACTION = 0.1  # poll interval, as a fraction of the time since the last event


@dataclass
class RestartBackoff:
    """Doubles the delay before a restart after every failure, up to a limit.

    >>> attempts = RestartBackoff(initial_s=1.0, max_s=8.0)
    >>> [attempts.record_failure(now=100.0) for _ in range(5)]
    [1.0, 2.0, 4.0, 8.0, 8.0]
    >>> attempts.is_due(now=104.0), attempts.is_due(now=109.0)
    (False, True)
    """

    initial_s: float = 0.5
    max_s: float = 30.0
    count: int = 0
    _next_attempt_at: float = field(default=0.0, repr=False)

    def record_failure(self, now: float | None = None) -> float:
        """Count a failure; return the seconds until the next attempt."""
        wait_s = min(self.initial_s * 2.0**self.count, self.max_s)
        self.count += 1
        self._next_attempt_at = (time.monotonic() if now is None else now) + wait_s
        return wait_s

    def is_due(self, now: float | None = None) -> bool:
        """Whether the delay after the last failure is over."""
        return (time.monotonic() if now is None else now) >= self._next_attempt_at

    def reset_backoff(self) -> None:
        """Start again with the shortest delay."""
        self.count = 0


class PollInterval:
    """Seconds between two polls: a fraction of the time since the last event.

    Each poll costs the other side a request, so idle nodes poll rarely and busy nodes often.
    """

    def __init__(
        self, min_s: float, max_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._min_s, self._max_s, self._clock = min_s, max_s, clock
        self._last_event_at = clock()

    def reset(self) -> None:
        """Record an event: the next interval is the shortest."""
        self._last_event_at = self._clock()

    def next_s(self) -> float:
        """Seconds to wait now.

        >>> intervals = PollInterval(0.25, 3.0, clock=iter([100.0, 101.0, 110.0, 1000.0]).__next__)
        >>> intervals.next_s(), intervals.next_s(), intervals.next_s()
        (0.25, 1.0, 3.0)
        """
        idle_s = self._clock() - self._last_event_at
        return min(max(IDLE_FRACTION * idle_s, self._min_s), self._max_s)
