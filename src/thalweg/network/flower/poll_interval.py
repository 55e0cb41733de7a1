"""How long to wait before one looks again: the longer nothing came, the longer.

Looking costs the other side a request. A fleet that looks several times a second keeps its SuperLink busy with
nothing, so a pause is a share of the time that nothing has come: short rounds begin at once, and a node that has
nothing to do for minutes hardly asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

IDLE_FRACTION = 0.1  # of the time that nothing has come


class PollInterval:
    """Pauses of one who looks for something."""

    def __init__(
        self, min_s: float, max_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._min_s, self._max_s, self._clock = min_s, max_s, clock
        self._last_event_at = clock()

    def reset(self) -> None:
        """Something came: the next will perhaps come soon."""
        self._last_event_at = self._clock()

    def next_s(self) -> float:
        """How long to wait now.

        >>> pauses = PollInterval(0.25, 3.0, clock=iter([100.0, 101.0, 110.0, 1000.0]).__next__)
        >>> pauses.next_s(), pauses.next_s(), pauses.next_s()
        (0.25, 1.0, 3.0)
        """
        idle_s = self._clock() - self._last_event_at
        return min(max(IDLE_FRACTION * idle_s, self._min_s), self._max_s)
