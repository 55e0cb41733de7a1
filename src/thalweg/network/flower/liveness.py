"""A file lock that shows whether the ServerApp of a run folder is running.

Flower starts the ServerApp, so it is not a child process of `thalweg serve`. The system releases
the lock however the process ends. The ServerApp writes the reason of a failure to ``failure.txt``.
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
    """Hold the lock while the ServerApp runs."""
    with lock_file(folder / LOCK, f"another ServerApp is running in {folder}; stop it first."):
        yield


def is_server_running(folder: Path) -> bool:
    """Whether a ServerApp holds the lock of this run folder."""
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
    """Lock a file exclusively; raise `RunError` with the message `or_else` if it is locked."""
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
    """Try for a second, as `is_server_running` holds the lock for an instant."""
    for _ in range(50):
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
    raise RunError(or_else)
