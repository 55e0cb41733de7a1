"""How long to wait before one looks again: the longer nothing came, the longer.

Looking costs the other side a request. A fleet that looks several times a second keeps its SuperLink busy with
nothing, so a pause is a share of the time that nothing has come: short rounds begin at once, and a node that has
nothing to do for minutes hardly asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.1  # of the time that nothing has come


class Pauses:
    """Pauses of one who looks for something."""

    def __init__(
        self, least_s: float, most_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._least_s, self._most_s, self._clock = least_s, most_s, clock
        self._came_at = clock()

    def came(self) -> None:
        """Something came: the next will perhaps come soon."""
        self._came_at = self._clock()

    def next_s(self) -> float:
        """How long to wait now.

        >>> pauses = Pauses(0.25, 3.0, clock=iter([100.0, 101.0, 110.0, 1000.0]).__next__)
        >>> pauses.next_s(), pauses.next_s(), pauses.next_s()
        (0.25, 1.0, 3.0)
        """
        idle_s = self._clock() - self._came_at
        return min(max(SHARE * idle_s, self._least_s), self._most_s)
