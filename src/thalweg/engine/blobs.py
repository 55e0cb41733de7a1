"""Files for large arrays that no longer change, each written once.

A checkpoint replaces the server's file in every round. Arrays that are kept for long, such as the
models of past sessions, would be written again each time. Therefore read-only arrays
(`core.vectors.freeze`) are written to separate files, and the server's file contains their names.
A name is a digest of the array, so that two arrays never have the same name and damage is detected.

The process may be killed at any moment: new arrays are written first, then the server's file, and
then the arrays that it no longer names are removed.
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

MIN_BLOB_BYTES = 64 * 1024  # smaller arrays stay in the tree
SUFFIX = ".safetensors"
NAME = re.compile(r"[0-9a-f]{32}")
ATTEMPTS = 20  # to read a tree while another process writes it


class Blobs:
    """The array files of one tree. Arrays that are already in a file are not written again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # By id of the array; the reference to the array keeps the id unique.
        self._written: dict[int, tuple[Array, str]] = {}
        self._names: set[str] | None = None  # of the files in the folder; None: unknown

    def write(self, path: Path, tree: Tree) -> None:
        """Write the tree to `path`, and those of its large arrays that are not in a file yet."""
        used: dict[int, tuple[Array, str]] = {}

        def external_name(array: Array) -> str | None:
            if array.nbytes < MIN_BLOB_BYTES or not (is_frozen(array) and array.dtype.isnative):
                return None
            used[id(array)] = self._written.get(id(array)) or (array, self._store(array))
            return used[id(array)][1]

        write_tree(path, tree, external_name)
        self._written = used
        self.remove_unused()

    def read(self, path: Path) -> Tree:
        """Read what `write` wrote. While another process writes, return the old or the new tree."""
        for _ in range(ATTEMPTS - 1):
            before = _stamp(path)
            try:
                return self._read(path)
            except RunError:
                if _stamp(path) == before:
                    raise
        return self._read(path)

    def remove_unused(self) -> None:
        """Remove files that the tree last written or read does not name.

        To be called by the process that writes the tree only.
        """
        names = {name for _, name in self._written.values()}
        if names == self._names:
            return
        wanted = {self._file(name) for name in names}
        for file in self._folder.glob("*"):
            if file not in wanted:
                with contextlib.suppress(OSError):  # unused files do no harm
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
            raise RunError(f"{self._file(name)} is damaged: its content does not match its name.")
        array.flags.writeable = False
        return array

    def _file(self, name: str) -> Path:
        return self._folder / (name + SUFFIX)


def digest(array: Array) -> str:
    """Return a name that depends on the dtype, the shape and the numbers of an array."""
    found = hashlib.blake2b(digest_size=16)
    found.update(f"{array.dtype.name} {array.shape} ".encode())
    found.update(array.data)
    return found.hexdigest()


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return a value that changes whenever the file is replaced; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
