"""How the process that plays the rounds and the one that started it know of each other.

Flower starts the ServerApp, so it is no child of `thalweg serve`. A lock on a file in the run folder tells
whether it lives: the system lets go of it whatever way the process ends. Why it ended, if for a reason of ours,
is in ``failure.txt`` (`network/flower/server_app.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thalweg.core.errors import RunError

try:
    import fcntl
except ImportError:  # Flower's programs run on systems that have it
    fcntl = None  # type: ignore[assignment]

LOCK = ".serverapp"


@contextmanager
def hold_server_lock(folder: Path) -> Iterator[None]:
    """Around all that the ServerApp does: it is seen to live."""
    with lock_file(folder / LOCK, f"another ServerApp is at work in {folder}."):
        yield


def is_server_running(folder: Path) -> bool:
    """Is a ServerApp at work on this run?"""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(lock)


@contextmanager
def lock_file(path: Path, or_else: str) -> Iterator[None]:
    """Have a file to ourselves; what is said if somebody else has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RunError(f"cannot write to {path.parent}: {error.strerror}.") from error
    try:
        _acquire(lock, or_else)
        yield
    finally:
        os.close(lock)


def _acquire(lock: int, or_else: str) -> None:
    """Waits a moment for those who only look."""
    for _ in range(50):
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
    raise RunError(or_else)
