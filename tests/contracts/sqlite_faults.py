"""Faults of disks and processes, injected at the changes of the files of a device.

SQLite changes files through the functions of a VFS. `using` makes a copy of the standard VFS the
default one; its functions for changes call a `SqliteDisk`, which counts them and injects faults.
`os.pwrite`, `os.fsync` and `os.posix_fallocate`, with which samples are stored, call it too.
Synchronisation is recorded and not performed, because it is slow.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import errno
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from contracts import faults
from thalweg.core.files import System

WRITE_ERROR, FULL, CANNOT_OPEN = sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_FULL, 14
OTHER_ERRORS = {
    "open": CANNOT_OPEN,
    "truncate": sqlite3.SQLITE_IOERR_TRUNCATE,
    "sync": sqlite3.SQLITE_IOERR_FSYNC,
    "delete": sqlite3.SQLITE_IOERR_DELETE,
}
CREATE, SECTOR = 0x4, 512


class SqliteDisk:
    """The changes of the files in one folder. Subclasses inject a fault at change `at`."""

    def __init__(self, folder: Path, at: int = -1) -> None:
        self.folder, self.at, self.calls, self.is_dead = folder, at, 0, False

    def create(self, path: Path) -> int:
        return self._count("open")

    def write(self, path: Path, payload: bytes, offset: int, do: Callable[[int], int]) -> int:
        return self._count("write", payload, do) or do(len(payload))

    def truncate(self, path: Path, size: int, do: Callable[[], int]) -> int:
        return self._count("truncate") or do()

    def sync(self, path: Path) -> int:
        return self._count("sync")

    def delete(self, path: Path, is_synced: bool, do: Callable[[], int]) -> int:
        return self._count("delete") or do()

    def sync_folder(self) -> int:
        return self._count("sync")

    def replace(self, source: Path, target: Path, do: Callable[[], None]) -> int:
        code = self._count("replace")
        if not code:
            do()
        return code

    def _count(
        self, call: str, payload: bytes = b"", do: Callable[[int], int] = lambda size: 0
    ) -> int:
        if self.is_dead:
            return WRITE_ERROR
        self.calls += 1
        return self.inject(call, payload, do) if self.calls - 1 == self.at else 0

    def inject(self, call: str, payload: bytes, do: Callable[[int], int]) -> int:
        """Return an error code. 0: a run without faults, to count its changes."""
        return 0


class KillingDisk(SqliteDisk):
    """The process is killed before a change; with `half`, half of the bytes were written."""

    def __init__(self, folder: Path, at: int, half: bool = False) -> None:
        super().__init__(folder, at)
        self.half = half

    def inject(self, call: str, payload: bytes, do: Callable[[int], int]) -> int:
        if self.half and payload:
            do(len(payload) // 2)
        self.is_dead = True
        return WRITE_ERROR


class FailingDisk(SqliteDisk):
    """One change fails with `code`; with `half`, after half of the bytes were written."""

    def __init__(self, folder: Path, at: int, code: int, half: bool = False) -> None:
        super().__init__(folder, at)
        self.code, self.half = code, half

    def inject(self, call: str, payload: bytes, do: Callable[[int], int]) -> int:
        if self.half and payload:
            do(len(payload) // 2)
        return OTHER_ERRORS.get(call, self.code)


class FullDisk(SqliteDisk):
    """Files can grow by `space` bytes; what fits is written."""

    def __init__(self, folder: Path, space: int) -> None:
        super().__init__(folder)
        self.left = space

    def write(self, path: Path, payload: bytes, offset: int, do: Callable[[int], int]) -> int:
        growth = max(offset + len(payload) - path.stat().st_size, 0)
        missing = max(growth - self.left, 0)
        self.left -= growth - missing
        if missing:
            do(len(payload) - missing)
            return FULL
        return do(len(payload))


class PowerLossDisk(SqliteDisk):
    """Records what is durable. `lose_power` leaves only that, and a random part of the rest.

    Bytes are durable after the file was synchronised, names after the folder was. Each change of a
    file that was not synchronised is complete, absent, or complete in some sectors. Names change in
    the order of the calls.
    """

    def __init__(self, folder: Path, at: int) -> None:
        super().__init__(folder, at)
        self._durable: dict[int, bytes] = {}  # content by number of the file
        self._changes: dict[int, list[tuple[int, bytes | None]]] = {}  # None: end of the file
        self._names: dict[Path, int] = {}  # as the process sees them
        self._durable_names: dict[Path, int] = {}
        self._name_changes: list[tuple[Path, int | None]] = []
        self._new_logs: set[int] = set()  # SQLite synchronises the folder with their first content
        for path in self._list_files():
            number = self._names[path] = self._durable_names[path] = self._add()
            self._durable[number] = path.read_bytes()

    def inject(self, call: str, payload: bytes, do: Callable[[int], int]) -> int:
        self.is_dead = True
        return WRITE_ERROR

    def create(self, path: Path) -> int:
        code = super().create(path)
        if not code:
            number = self._add()
            self._rename(path, number)
            if path.name.endswith(("-journal", "-wal")):
                self._new_logs.add(number)
        return code

    def write(self, path: Path, payload: bytes, offset: int, do: Callable[[int], int]) -> int:
        code = super().write(path, payload, offset, do)
        if not code:
            self._changes[self._number(path)].append((offset, payload))
        return code

    def truncate(self, path: Path, size: int, do: Callable[[], int]) -> int:
        code = super().truncate(path, size, do)
        if not code:
            self._changes[self._number(path)].append((size, None))
        return code

    def sync(self, path: Path) -> int:
        code = super().sync(path)
        if not code:
            number = self._number(path)
            self._durable[number] = path.read_bytes()
            self._changes[number].clear()
            if number in self._new_logs:
                self._new_logs.discard(number)
                self._make_names_durable(len(self._name_changes))
        return code

    def delete(self, path: Path, is_synced: bool, do: Callable[[], int]) -> int:
        code = super().delete(path, is_synced, do)
        if not code and path in self._names:
            self._rename(path, None)
            if is_synced:
                self._make_names_durable(len(self._name_changes))
        return code

    def sync_folder(self) -> int:
        code = super().sync_folder()
        if not code:
            self._make_names_durable(len(self._name_changes))
        return code

    def replace(self, source: Path, target: Path, do: Callable[[], None]) -> int:
        code = super().replace(source, target, do)
        if not code:
            self._rename(target, self._number(source))
            self._rename(source, None)
        return code

    def lose_power(self, rng: random.Random) -> None:
        """Replace the files by what the disk contains after a power cut."""
        self._make_names_durable(rng.randint(0, len(self._name_changes)))
        for path in self._list_files():
            path.unlink()
        for path, number in self._durable_names.items():
            path.write_bytes(self._choose_content(number, rng))

    def _list_files(self) -> list[Path]:
        """The files without the lock and the shared memory, which have no content to keep."""
        files = (path for path in self.folder.iterdir() if path.is_file())
        return [path for path in files if path.name != ".lock" and path.suffix != ".db-shm"]

    def _choose_content(self, number: int, rng: random.Random) -> bytes:
        content = bytearray(self._durable[number])
        survival = rng.choice([0.0, 0.5, 0.9, 1.0])
        for offset, payload in self._changes[number]:
            if payload is None:
                if rng.random() < survival:
                    del content[offset:]
                continue
            for first in range(0, len(payload), SECTOR):
                if rng.random() < survival:
                    sector = payload[first : first + SECTOR]
                    content.extend(bytes(max(offset + first - len(content), 0)))
                    content[offset + first : offset + first + len(sector)] = sector
        return bytes(content)

    def _add(self) -> int:
        number = len(self._durable)
        self._durable[number], self._changes[number] = b"", []
        return number

    def _number(self, path: Path) -> int:
        if path not in self._names:  # created before SQLite opened it
            self._rename(path, self._add())
        return self._names[path]

    def _rename(self, path: Path, number: int | None) -> None:
        self._name_changes.append((path, number))
        if number is None:
            del self._names[path]
        else:
            self._names[path] = number

    def _make_names_durable(self, count: int) -> None:
        for path, number in self._name_changes[:count]:
            if number is None:
                self._durable_names.pop(path, None)
            else:
                self._durable_names[path] = number
        del self._name_changes[:count]


class _FolderSystem(System):
    """Synchronises folders, and renames and removes files, through a `SqliteDisk`."""

    def __init__(self, disk: SqliteDisk) -> None:
        super().__init__()
        self._disk = disk

    def sync(self, file: int) -> None:
        _check(self._disk.sync_folder())

    def replace(self, source: Path, target: Path) -> None:
        _check(self._disk.replace(source, target, lambda: os.replace(source, target)))

    def unlink(self, path: Path) -> None:
        if path.exists():
            _check(self._disk.delete(path, False, lambda: path.unlink() or 0))


@contextmanager
def using(disk: SqliteDisk) -> Iterator[None]:
    """Make all changes of SQLite files, and synchronise folders, through a disk."""
    vfs = _Vfs(disk)
    with faults.using(_FolderSystem(disk)), pytest.MonkeyPatch.context() as patch:
        _patch_os(disk, patch)
        _library.sqlite3_vfs_register(ctypes.byref(vfs.copy), 1)
        try:
            yield
        finally:
            _library.sqlite3_vfs_unregister(ctypes.byref(vfs.copy))


def _patch_os(disk: SqliteDisk, patch: pytest.MonkeyPatch) -> None:
    write, allocate = os.pwrite, os.posix_fallocate

    def find(file: int) -> Path:
        return Path(os.readlink(f"/proc/self/fd/{file}"))

    def pwrite(file: int, payload: bytes, offset: int) -> int:
        _check(
            disk.write(find(file), payload, offset, lambda n: 0 * write(file, payload[:n], offset))
        )
        return len(payload)

    def posix_fallocate(file: int, offset: int, size: int) -> None:
        _check(
            disk.write(find(file), bytes(size), offset, lambda n: allocate(file, offset, n) or 0)
        )

    patch.setattr(os, "pwrite", pwrite)
    patch.setattr(os, "posix_fallocate", posix_fallocate)
    patch.setattr(os, "fsync", lambda file: _check(disk.sync(find(file))))


def _check(code: int) -> None:
    if code:
        number = errno.ENOSPC if code == FULL else errno.EIO
        raise OSError(number, os.strerror(number))


# --- the structures of sqlite3.h ---

_library = ctypes.CDLL(_sqlite3.__file__)  # its dependencies include the library of SQLite
_Pointer, _Int, _Long, _Text = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_char_p
_Open = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Pointer, _Int, _Pointer)
_Delete = ctypes.CFUNCTYPE(_Int, _Pointer, _Text, _Int)
_Write = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Int, _Long)
_Truncate = ctypes.CFUNCTYPE(_Int, _Pointer, _Long)
_Sync = ctypes.CFUNCTYPE(_Int, _Pointer, _Int)


class _VfsFields(ctypes.Structure):
    _fields_ = (
        ("iVersion", _Int),
        ("szOsFile", _Int),
        ("mxPathname", _Int),
        ("pNext", _Pointer),
        ("zName", _Text),
        ("pAppData", _Pointer),
        ("xOpen", _Open),
        ("xDelete", _Delete),
        ("others", _Pointer * 14),
    )


class _Methods(ctypes.Structure):
    _fields_ = (
        ("iVersion", _Int),
        ("xClose", _Pointer),
        ("xRead", _Pointer),
        ("xWrite", _Write),
        ("xTruncate", _Truncate),
        ("xSync", _Sync),
        ("others", _Pointer * 13),
    )


class _File(ctypes.Structure):
    _fields_ = (("pMethods", ctypes.POINTER(_Methods)),)


_library.sqlite3_vfs_find.restype = ctypes.POINTER(_VfsFields)


class _Vfs:
    """A copy of the standard VFS. Files of other folders are treated as before."""

    def __init__(self, disk: SqliteDisk) -> None:
        self._disk = disk
        self._standard = _library.sqlite3_vfs_find(None).contents
        self._paths: dict[int, Path] = {}  # by address of the open file
        self._methods: dict[int, Any] = {}  # the standard methods, and the changed copies
        self.copy = _VfsFields()
        ctypes.pointer(self.copy)[0] = self._standard
        self.copy.zName = b"faulty"
        self.copy.xOpen, self.copy.xDelete = _Open(self._open), _Delete(self._delete)

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        # The standard VFS keeps the address of the name, so that it must not be copied.
        path = None if name is None else self._find(ctypes.string_at(name))
        is_new = path is not None and flags & CREATE and not path.exists()
        if is_new and (code := self._disk.create(path)):
            _File.from_address(file).pMethods = None
            return code
        code = self._standard.xOpen(ctypes.addressof(self._standard), name, file, flags, out)
        if not code and path is not None:
            self._paths[file] = path
            opened = _File.from_address(file)
            opened.pMethods = ctypes.pointer(self._change(opened.pMethods.contents))
        return code

    def _delete(self, vfs: int, name: bytes, is_synced: int) -> int:
        def do(synced: int = 0) -> int:
            return int(self._standard.xDelete(ctypes.addressof(self._standard), name, synced))

        path = self._find(name)
        if path is None or not path.exists():
            return do(is_synced)
        return self._disk.delete(path, bool(is_synced), do)

    def _change(self, methods: _Methods) -> _Methods:
        address = ctypes.addressof(methods)
        if address not in self._methods:
            changed = _Methods()
            ctypes.pointer(changed)[0] = methods

            def write(file: int, payload: int, size: int, offset: int) -> int:
                return self._disk.write(
                    self._paths[file],
                    ctypes.string_at(payload, size),
                    offset,
                    lambda part: int(methods.xWrite(file, payload, part, offset)),
                )

            def truncate(file: int, size: int) -> int:
                return self._disk.truncate(
                    self._paths[file], size, lambda: int(methods.xTruncate(file, size))
                )

            changed.xWrite, changed.xTruncate = _Write(write), _Truncate(truncate)
            changed.xSync = _Sync(lambda file, flags: self._disk.sync(self._paths[file]))
            self._methods[address] = (methods, changed)
        return self._methods[address][1]  # type: ignore[no-any-return]

    def _find(self, name: bytes) -> Path | None:
        path = Path(os.fsdecode(name))
        return path if path.parent == self._disk.folder else None
