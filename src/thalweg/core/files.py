"""Change files so that a crash, a full disk or a power cut leaves the old or the new content.

A file is written under a temporary name, synchronised with the disk, and renamed. Folders have mode
0700 and files by default mode 0600, because checkpoints contain the states of clients.

All changes are made by `System`, whose methods are single system calls. Tests replace it to count
the calls and to inject faults.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

try:
    import fcntl
except ImportError:  # no file locks on this system: two processes in one folder are not detected
    fcntl = None  # type: ignore[assignment]

FOLDER_MODE = 0o700
FILE_MODE = 0o600
PUBLIC_MODE = 0o666  # of files for other users, if the umask permits it
LOCK = ".lock"  # file in a folder that is locked
UNFINISHED = ".part"  # suffix of temporary names
CHUNK = 1 << 20  # bytes read at a time
NO_SYNC = "THALWEG_NO_SYNC"  # environment variable; 1: files are not synchronised
BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends


class Digest(NamedTuple):
    """Size and checksum of a file."""

    size: int
    checksum: str  # BLAKE2b, 32 hex digits


class System:
    """The system calls that change files; without `is_syncing`, `sync` is not called."""

    def __init__(self, is_syncing: bool = True) -> None:
        self.is_syncing = is_syncing

    def open(self, path: Path, flags: int, mode: int = FILE_MODE) -> int:
        return os.open(path, flags | BINARY, mode)

    def write(self, file: int, payload: memoryview) -> int:
        return os.write(file, payload)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def sync(self, file: int) -> None:
        os.fsync(file)

    def replace(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def mkdir(self, path: Path) -> None:
        path.mkdir(FOLDER_MODE, exist_ok=True)


system = System(is_syncing=os.environ.get(NO_SYNC, "0") in ("", "0"))


def write_file(path: Path, payload: bytes, mode: int = FILE_MODE) -> Digest:
    """Replace a file. Readers see the old or the new content, also after a power cut.

    Call `sync_folder` afterwards: the new name is durable only then. `mode` contains the access
    rights of the file, from which those in the umask are removed.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        file = _create(unfinished, mode)
        with _closing(file):
            _write_all(file, payload)
        system.replace(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            system.unlink(unfinished)
        raise
    return digest_bytes(payload)


def append_file(path: Path, payload: bytes) -> None:
    """Write bytes at the end of a file, which is created if needed."""
    file = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    with _closing(file):
        _write_all(file, payload)


def cut_file(path: Path, size: int) -> None:
    """Remove everything after the first `size` bytes of a file."""
    if path.stat().st_size > size:
        file = system.open(path, os.O_WRONLY)
        with _closing(file):
            system.truncate(file, size)
            if system.is_syncing:
                system.sync(file)


def remove_file(path: Path) -> None:
    """Remove a file if it exists."""
    system.unlink(path)


def rename_file(source: Path, target: Path) -> None:
    """Rename a file; one with the new name is replaced."""
    system.replace(source, target)


def move_folder_aside(path: Path) -> None:
    """Rename a folder that has the name of a file, so that the file can be written."""
    if path.is_dir() and not path.is_symlink():
        names = (path.with_name(f"{path.name}.folder{number or ''}") for number in count())
        system.replace(path, next(name for name in names if not name.exists()))


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist; new ones are private."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():
            system.mkdir(folder)
            sync_folder(folder.parent)
        elif not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def sync_folder(path: Path) -> None:
    """Make the names of new, renamed and removed files of a folder durable."""
    if not system.is_syncing or os.name == "nt":  # Windows cannot open folders
        return
    file = os.open(path, os.O_RDONLY)
    with _closing(file):
        system.sync(file)


def lock_folder(path: Path, timeout_s: float = 0.0) -> IO[str] | None:
    """Lock a folder for this process until the returned file is closed.

    Wait up to `timeout_s` seconds for another process to release it, then raise BlockingIOError.
    Return None on systems without file locks.
    """
    if fcntl is None:
        return None  # type: ignore[unreachable]
    lock = os.fdopen(os.open(path / LOCK, os.O_RDWR | os.O_CREAT, FILE_MODE), "w")
    until = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() >= until:
                lock.close()
                raise
        except BaseException:
            lock.close()
            raise
        time.sleep(0.05)


def digest_bytes(payload: bytes) -> Digest:
    """Return size and checksum of bytes."""
    return Digest(len(payload), hashlib.blake2b(payload, digest_size=16).hexdigest())


def digest_file(path: Path, size: int | None = None) -> Digest:
    """Return size and checksum of a file, or of its first `size` bytes."""
    found, left = hashlib.blake2b(digest_size=16), size
    length = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK if left is None else min(CHUNK, left)):
            found.update(chunk)
            length += len(chunk)
            left = None if left is None else left - len(chunk)
    return Digest(length, found.hexdigest())


def seal(plain: Mapping[str, Any]) -> bytes:
    """Convert plain values to JSON with a checksum; `unseal` is the inverse.

    >>> unseal(seal({"round": 3}))
    {'round': 3}
    >>> unseal(seal({"round": 3}).replace(b"3", b"4", 1))
    Traceback (most recent call last):
    ValueError: its checksum does not match its content
    """
    return (json.dumps({**plain, "checksum": _sum(plain)}, indent=1) + "\n").encode()


def unseal(payload: bytes) -> dict[str, Any]:
    """Read what `seal` wrote; raise ValueError if it was changed."""
    try:
        plain = json.loads(payload)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(plain, dict):
        raise ValueError("it is not an object")
    if plain.pop("checksum", None) != _sum(plain):
        raise ValueError("its checksum does not match its content")
    return plain


def _create(path: Path, mode: int) -> int:
    """Open a new file; one of an interrupted write, whose mode may differ, is removed."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return system.open(path, flags, mode)
    except FileExistsError:
        system.unlink(path)
        return system.open(path, flags, mode)


def _write_all(file: int, payload: bytes) -> None:
    left = memoryview(payload)
    while left:
        left = left[system.write(file, left) :]
    if system.is_syncing:
        system.sync(file)


@contextlib.contextmanager
def _closing(file: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(file)


def _sum(plain: Mapping[str, Any]) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return digest_bytes(text.encode()).checksum
