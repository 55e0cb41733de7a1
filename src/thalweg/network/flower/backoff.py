"""How often, and how soon, something that died is started again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class RestartBackoff:
    """Waits twice as long after every death, up to a limit; `calm` forgives what was.

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
        """Note a death; seconds until the next attempt."""
        wait_s = min(self.initial_s * 2.0**self.count, self.max_s)
        self.count += 1
        self._next_attempt_at = (time.monotonic() if now is None else now) + wait_s
        return wait_s

    def is_due(self, now: float | None = None) -> bool:
        return (time.monotonic() if now is None else now) >= self._next_attempt_at

    def reset_backoff(self) -> None:
        self.count = 0
