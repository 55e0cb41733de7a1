"""Faults of disks and processes, injected at the system calls of `thalweg.core.files`."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from thalweg.core import files
from thalweg.core.files import FILE_MODE, System


class Killed(BaseException):
    """The process ends; no error handler of the package catches this exception."""


class FaultySystem(System):
    """Counts the system calls. Subclasses inject a fault at the call with the number `at`."""

    def __init__(self, at: int = -1, is_syncing: bool = True) -> None:
        super().__init__(is_syncing)
        self.at, self.calls, self.is_dead = at, 0, False

    def open(self, path: Path, flags: int, mode: int = FILE_MODE) -> int:
        self._count("open")
        return super().open(path, flags, mode)

    def write(self, file: int, payload: memoryview) -> int:
        self._count("write", file, payload)
        return super().write(file, payload)

    def truncate(self, file: int, size: int) -> None:
        self._count("truncate")
        super().truncate(file, size)

    def sync(self, file: int) -> None:
        self._count("sync")  # without the real call, which is slow

    def replace(self, source: Path, target: Path) -> None:
        self._count("replace")
        super().replace(source, target)

    def unlink(self, path: Path) -> None:
        self._count("unlink")
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self._count("mkdir")
        super().mkdir(path)

    def _count(self, call: str, file: int = -1, payload: memoryview | None = None) -> None:
        if self.is_dead:
            raise Killed
        self.calls += 1
        if self.calls - 1 == self.at:
            self.inject(call, file, payload)

    def inject(self, call: str, file: int, payload: memoryview | None) -> None:
        """Do nothing: a run without faults, to count its calls."""


class KillingSystem(FaultySystem):
    """The process is killed before a call; with `half`, a write has written half of its bytes."""

    def __init__(self, at: int, half: bool = False) -> None:
        super().__init__(at)
        self.half = half

    def inject(self, call: str, file: int, payload: memoryview | None) -> None:
        if self.half and payload is not None:
            os.write(file, payload[: len(payload) // 2])
        self.is_dead = True
        raise Killed


class FailingSystem(FaultySystem):
    """One call fails."""

    def __init__(self, at: int, number: int = errno.EIO) -> None:
        super().__init__(at)
        self.number = number

    def inject(self, call: str, file: int, payload: memoryview | None) -> None:
        raise OSError(self.number, os.strerror(self.number))


class ShortWritingSystem(FaultySystem):
    """Every write stores one third of its bytes, at least one."""

    def write(self, file: int, payload: memoryview) -> int:
        self._count("write")
        return os.write(file, payload[: max(len(payload) // 3, 1)])


class FullSystem(FaultySystem):
    """The disk is full after some bytes; what fits is written."""

    def __init__(self, space: int) -> None:
        super().__init__()
        self.left = space

    def write(self, file: int, payload: memoryview) -> int:
        if not self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(file, payload[: self.left])
        self.left -= written
        return written


class PowerLossSystem(FaultySystem):
    """Records what is durable. `lose_power` leaves only that, and a random part of the rest.

    The content of a file is durable after it was synchronised, a name after its folder was. The
    changes of names in a folder survive in the order in which they were made, as in file systems
    with a journal. The content of a file that was not synchronised is the old one, the new one,
    cut off, or zeros.
    """

    def __init__(self, root: Path, at: int) -> None:
        super().__init__(at)
        self.root = root
        self._contents: dict[int, int] = {}  # open file -> number of its content
        self._now: dict[int, bytearray] = {}
        self._synced: dict[int, bytes] = {}
        self._names: dict[Path, int] = {}  # in memory
        self._pending: dict[Path, list[dict[Path, int | None]]] = {}  # changes of names
        for path in (each for each in root.rglob("*") if each.is_file()):
            number = self._names[path] = len(self._now)
            self._synced[number] = path.read_bytes()
            self._now[number] = bytearray(self._synced[number])
        self._durable = dict(self._names)

    def inject(self, call: str, file: int, payload: memoryview | None) -> None:
        self.is_dead = True
        raise Killed

    def open(self, path: Path, flags: int, mode: int = FILE_MODE) -> int:
        file = super().open(path, flags, mode)
        if path not in self._names:
            self._change_names({path: len(self._now)})
            self._now[self._names[path]] = bytearray()
            self._synced[self._names[path]] = b""
        number = self._names[path]
        if flags & os.O_TRUNC:
            self._now[number].clear()
        self._contents[file] = number
        return file

    def write(self, file: int, payload: memoryview) -> int:
        written = super().write(file, payload)
        self._now[self._contents[file]] += payload[:written]
        return written

    def truncate(self, file: int, size: int) -> None:
        super().truncate(file, size)
        del self._now[self._contents[file]][size:]

    def sync(self, file: int) -> None:
        super().sync(file)
        folder = Path(os.readlink(f"/proc/self/fd/{file}"))
        if folder.is_dir():
            self._make_durable(folder, len(self._pending.get(folder, [])))
        else:
            self._synced[self._contents[file]] = bytes(self._now[self._contents[file]])

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self._change_names({target: self._names[source], source: None})

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        if path in self._names:
            self._change_names({path: None})

    def lose_power(self, rng: random.Random) -> None:
        """Replace all files by what the disk contains after a power cut."""
        for folder, changes in self._pending.items():
            self._make_durable(folder, rng.randint(0, len(changes)))
        for path in self.root.rglob("*"):
            if path.is_file() and path.name != ".lock":
                path.unlink()
        for path, number in self._durable.items():
            path.write_bytes(self._surviving_content(number, rng))

    def _surviving_content(self, number: int, rng: random.Random) -> bytes:
        new, old = bytes(self._now[number]), self._synced[number]
        is_longer = new.startswith(old)  # bytes that were appended do not change earlier ones
        start = old if is_longer else b""
        added = new[len(start) :]
        return start + rng.choice(
            [old[len(start) :], added, added[: rng.randint(0, len(added))], bytes(len(added))]
        )

    def _change_names(self, changes: dict[Path, int | None]) -> None:
        folder = next(iter(changes)).parent
        self._pending.setdefault(folder, []).append(changes)
        _apply(self._names, changes)

    def _make_durable(self, folder: Path, count: int) -> None:
        pending = self._pending.get(folder, [])
        for changes in pending[:count]:
            _apply(self._durable, changes)
        del pending[:count]


def _apply(names: dict[Path, int], changes: dict[Path, int | None]) -> None:
    for path, number in changes.items():
        if number is None:
            names.pop(path, None)
        else:
            names[path] = number


@contextmanager
def using(system: System) -> Iterator[None]:
    """Make all changes of files through another system."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "system", system)
        yield
