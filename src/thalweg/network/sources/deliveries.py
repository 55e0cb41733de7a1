"""Delivered and acknowledged messages of an MQTT session.

A broker repeats a message with QoS 1 after every reconnection until it is acknowledged, with the
same number (mid) and a redelivery flag. Only stored messages are acknowledged, so messages
interrupted by a crash or a lost connection are delivered again; the last mids, stored in the cursor
together with the samples, identify duplicates.
"""

from __future__ import annotations

import threading
import zlib

from thalweg.network.sources.base_source import decode_cursor, encode_cursor

IN_FLIGHT = 32  # messages that a broker sends ahead of the acknowledgements
MAX_REMEMBERED = 4 * IN_FLIGHT  # more than any broker has in flight


class Deliveries:
    """The deliveries of one session. Thread-safe."""

    def __init__(self, cursor: str = "") -> None:
        parts = decode_cursor(cursor, at=int, seen=str) or {"at": 0, "seen": ""}
        self._number = self._confirmed = int(parts["at"])  # of the last message
        self._seen = dict.fromkeys(parts["seen"].split(), self._number)  # "mid:digest" -> number
        self._open: dict[int, int] = {}  # mid -> number, not acknowledged
        self._lock = threading.Lock()

    def receive(self, mid: int, payload: bytes, is_redelivery: bool) -> tuple[int | None, bool]:
        """Number of a new message, or None for a duplicate.

        And whether to acknowledge it immediately.
        """
        name = f"{mid}:{zlib.crc32(payload):x}"
        with self._lock:
            number = self._seen.get(name) if is_redelivery else None
            if number is not None and number <= self._confirmed:
                return None, True
            if number is not None:  # not stored yet
                self._open[mid] = number
                return None, False
            self._number += 1
            self._seen.pop(name, None)  # move to the end
            self._seen[name] = self._open[mid] = self._number
            while len(self._seen) > MAX_REMEMBERED:
                del self._seen[next(iter(self._seen))]
            return self._number, False

    def confirm(self, cursor: str) -> list[int]:
        """Mids that can be acknowledged because everything up to a cursor is stored."""
        parts = decode_cursor(cursor, at=int, seen=str)
        with self._lock:
            self._confirmed = max(self._confirmed, 0 if parts is None else int(parts["at"]))
            done = [mid for mid, number in self._open.items() if number <= self._confirmed]
            for mid in done:
                del self._open[mid]
        return done

    @property
    def number(self) -> int:
        """Number of the last message."""
        return self._number

    def cursor(self, number: int) -> str:
        """Position after a message."""
        with self._lock:
            seen = " ".join(name for name, of in self._seen.items() if of <= number)
        return encode_cursor(at=number, seen=seen)

    def forget(self) -> None:
        """Forget all mids after the broker has lost the session."""
        with self._lock:
            self._seen.clear()
            self._open.clear()
