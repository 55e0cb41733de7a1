"""Ctrl-C and SIGTERM, for commands that have programs of their own to end first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(Exception):
    """Somebody wants us to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


@contextmanager
def stop_on_signal() -> Iterator[None]:
    """Inside, a first Ctrl-C or SIGTERM is a `Stopped`; while that is dealt with, a second one changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are for the main thread
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
