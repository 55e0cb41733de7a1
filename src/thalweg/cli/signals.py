"""Handling of Ctrl-C and SIGTERM for commands that must stop child processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
    """A stop was requested by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


@contextmanager
def stop_on_signal() -> Iterator[None]:
    """Raise `Stopped` on the first Ctrl-C or SIGTERM; ignore further ones during the cleanup."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are delivered to the main thread only
        return
    is_stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
