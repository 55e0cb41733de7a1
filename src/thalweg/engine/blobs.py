"""Arrays that will not change any more, each in a file of its own, written once.

A checkpoint replaces the server's file every round. What is stored for long, such as the models of past sessions,
would be written again with it, a thousand times over; so arrays that nobody can write to (`core.vectors.frozen`)
are kept beside it and the server's file only has their names. A name is a digest of the numbers: the same name
never means two things, whatever was interrupted, and damage is noticed.

The order makes a kill at any moment harmless: first the new arrays, then the server's file, then away with the
arrays that it does not name.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from pathlib import Path

import numpy as np

from thalweg.core.errors import RunError
from thalweg.core.trees import Array, Tree, read_tree, write_tree
from thalweg.core.vectors import is_frozen

MIN_BLOB_BYTES = 64 * 1024  # bytes; below, a file of its own is not worth the trouble
SUFFIX = ".safetensors"
NAME = re.compile(r"[0-9a-f]{32}")
ATTEMPTS = 20  # to read while another process writes


class Blobs:
    """The arrays beside one tree on disk. It remembers which objects are there already."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: dict[
            int, tuple[Array, str]
        ] = {}  # by identity; holding them keeps that unique
        self._names: set[str] | None = None  # in the folder; none: not known

    def write(self, path: Path, tree: Tree) -> None:
        """Write the tree to `path`, and beside it those of its arrays that are not there yet."""
        used: dict[int, tuple[Array, str]] = {}

        def elsewhere(array: Array) -> str | None:
            if array.nbytes < MIN_BLOB_BYTES or not (is_frozen(array) and array.dtype.isnative):
                return None
            used[id(array)] = self._written.get(id(array)) or (array, self._store(array))
            return used[id(array)][1]

        write_tree(path, tree, elsewhere)
        self._written = used
        self.remove_unused()

    def read(self, path: Path) -> Tree:
        """Read what `write` wrote, also while another process writes: then the old or the new tree."""
        for _ in range(ATTEMPTS - 1):
            before = _stamp(path)
            try:
                return self._read(path)
            except RunError:
                if _stamp(path) == before:
                    raise
        return self._read(path)

    def remove_unused(self) -> None:
        """Remove what the tree last written or read does not name: the past, and leftovers of interruptions.

        Only for the one process that writes.
        """
        names = {name for _, name in self._written.values()}
        if names == self._names:
            return
        wanted = {self._file(name) for name in names}
        for file in self._folder.glob("*"):
            if file not in wanted:
                with contextlib.suppress(OSError):  # what is left over only takes room
                    file.unlink()
        self._names = names

    def _read(self, path: Path) -> Tree:
        found: dict[str, Array] = {}

        def fetch(name: str) -> Array:
            if name not in found:
                found[name] = self._fetch(name)
            return found[name]

        tree = read_tree(path, fetch)
        self._written = {id(array): (array, name) for name, array in found.items()}
        return tree

    def _store(self, array: Array) -> str:
        name = digest(array)
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot write {self._folder}: {error.strerror}.") from error
        write_tree(self._file(name), array)
        return name

    def _fetch(self, name: str) -> Array:
        if not NAME.fullmatch(name):  # it becomes part of a path
            raise ValueError(f"{name!r} is not the name of an array")
        array = read_tree(self._file(name))
        if not isinstance(array, np.ndarray) or digest(array) != name:
            raise RunError(f"{self._file(name)} is damaged: it is not what was written there.")
        array.flags.writeable = False
        return array

    def _file(self, name: str) -> Path:
        return self._folder / (name + SUFFIX)


def digest(array: Array) -> str:
    """A name that only this array has: of its type, its shape and its numbers."""
    found = hashlib.blake2b(digest_size=16)
    found.update(f"{array.dtype.name} {array.shape} ".encode())
    found.update(array.data)
    return found.hexdigest()


def _stamp(path: Path) -> tuple[int, int] | None:
    """Another one whenever the file was replaced."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
