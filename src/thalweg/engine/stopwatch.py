"""Time that a round takes."""

from __future__ import annotations

import time


class Stopwatch:
    """Measures wall-clock and processor time since it was made."""

    def __init__(self) -> None:
        self._wall, self._core = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Return the metrics `seconds` and `core_seconds`.

        >>> sorted(Stopwatch().read())
        ['core_seconds', 'seconds']
        """
        return {
            "seconds": round(time.perf_counter() - self._wall, 6),
            "core_seconds": round(time.process_time() - self._core, 6),
        }
