"""Files for large arrays that no longer change, each written once.

A checkpoint replaces the server's file in every round. Arrays that are kept for long, such as the
models of past sessions, would be written again each time. Therefore read-only arrays
(`core.vectors.freeze`) are written to separate files, and the server's file contains their names.
A name is a digest of the array, so that two arrays never have the same name and damage is detected.

New arrays are written before the server's file. `RunFolder` removes the arrays that no kept round
uses.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thalweg.core.errors import RunError
from thalweg.core.files import Digest, make_folder, sync_folder
from thalweg.core.trees import Array, Tree, read_tree, write_tree
from thalweg.core.vectors import is_frozen
from thalweg.engine.sparse_arrays import pack_sparse, unpack_sparse

MIN_BLOB_BYTES = 64 * 1024  # smaller arrays stay in the tree
SUFFIX = ".safetensors"
NAME = re.compile(r"[0-9a-f]{32}")


class _Blob(NamedTuple):
    """An array and the file that contains it."""

    array: Array
    name: str
    file: Digest


class Blobs:
    """The array files of one tree. Arrays that are already in a file are not written again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # By id of the array; the reference to the array keeps the id unique.
        self._written: dict[int, _Blob] = {}

    def write(self, path: Path, tree: Tree) -> dict[Path, Digest]:
        """Write the tree to `path`, and those of its large arrays that are not in a file yet.

        Return the digests of all files that the tree consists of.
        """
        used: dict[int, _Blob] = {}

        def external_name(array: Array) -> str | None:
            if array.nbytes < MIN_BLOB_BYTES or not (is_frozen(array) and array.dtype.isnative):
                return None
            used[id(array)] = self._written.get(id(array)) or self._store(array)
            return used[id(array)].name

        before = set(self._written)
        found = {path: write_tree(path, pack_sparse(tree), external_name)}
        if used.keys() - before:
            sync_folder(self._folder)
        self._written = used
        return found | {self._file(blob.name): blob.file for blob in used.values()}

    def read(self, path: Path, digests: Mapping[Path, Digest]) -> Tree:
        """Read what `write` wrote, and returned as `digests`."""
        found: dict[str, _Blob] = {}

        def fetch(name: str) -> Array:
            if name not in found:
                found[name] = self._fetch(name, digests)
            return found[name].array

        tree = unpack_sparse(read_tree(path, fetch))
        self._written = {id(blob.array): blob for blob in found.values()}
        return tree

    def _store(self, array: Array) -> _Blob:
        name = digest(array)
        try:
            make_folder(self._folder)
        except OSError as error:
            raise RunError(f"cannot write {self._folder}: {error.strerror}.") from error
        return _Blob(array, name, write_tree(self._file(name), array))

    def _fetch(self, name: str, digests: Mapping[Path, Digest]) -> _Blob:
        if not NAME.fullmatch(name):  # it becomes part of a path
            raise ValueError(f"{name!r} is not the name of an array")
        file = self._file(name)
        if file not in digests:
            raise RunError(f"{file} is not a file of the round that refers to it.")
        array = read_tree(file)
        if not isinstance(array, np.ndarray) or digest(array) != name:
            raise RunError(f"{file} is damaged: its content does not match its name.")
        array.flags.writeable = False
        return _Blob(array, name, digests[file])

    def _file(self, name: str) -> Path:
        return self._folder / (name + SUFFIX)


def digest(array: Array) -> str:
    """Return a name that depends on the dtype, the shape and the numbers of an array."""
    found = hashlib.blake2b(digest_size=16)
    found.update(f"{array.dtype.name} {array.shape} ".encode())
    found.update(array.data)
    return found.hexdigest()
