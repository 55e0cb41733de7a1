"""Store only the rows of large arrays that differ from the others.

The server keeps tables with a row for each client, such as the last reported loss. A client that
has never taken part has the same row as all others of its kind. A checkpoint therefore contains the
common row once, and the positions and values of all other rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.trees import Array, Tree
from thalweg.core.vectors import is_frozen

MIN_ROWS = 4096  # shorter arrays are stored as they are
NUM_PROBES = 64  # rows that are read to find the common row
MAX_SHARE = 0.25  # of the rows may differ from the common row


class SparseArray(NamedTuple):
    """An array (N, ...) of which most rows are equal."""

    sparse_rows: int  # N
    common: Array  # (1, ...) the row of most positions
    positions: npt.NDArray[np.int64]  # (n,) positions of the other rows
    values: Array  # (n, ...)


def pack_sparse(tree: Tree) -> Tree:
    """Replace large arrays with mostly equal rows by `SparseArray`; read-only arrays stay."""
    if isinstance(tree, np.ndarray):
        return tree if len(tree.shape) == 0 or len(tree) < MIN_ROWS else _pack_array(tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(pack_sparse, tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map(pack_sparse, tree))
    if isinstance(tree, dict):
        return {key: pack_sparse(value) for key, value in tree.items()}
    return tree


def unpack_sparse(tree: Tree) -> Tree:
    """Restore the arrays in a tree that was read; NamedTuples are dicts of their fields."""
    if isinstance(tree, dict):
        if tree.keys() == set(SparseArray._fields):
            return _unpack_array(**tree)
        return {key: unpack_sparse(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [unpack_sparse(value) for value in tree]
    return tree


def _pack_array(array: Array) -> Array | SparseArray:
    if is_frozen(array) or array.dtype.kind not in "biuf" or array.size == 0:
        return array
    keys = _view_rows(np.ascontiguousarray(array))
    probes = np.linspace(0, len(keys) - 1, NUM_PROBES).astype(np.int64)
    _, first, counts = np.unique(keys[probes], axis=0, return_index=True, return_counts=True)
    if counts.max() < (1 - MAX_SHARE) * NUM_PROBES:
        return array
    common = int(probes[first[counts.argmax()]])
    positions = np.flatnonzero((keys != keys[common]).any(axis=1))
    if len(positions) > MAX_SHARE * len(array):
        return array
    return SparseArray(len(array), array[common : common + 1], positions, array[positions])


def _view_rows(array: Array) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Return the bits of each row as whole numbers, so that nan equals nan."""
    view: npt.NDArray[np.unsignedinteger[Any]] = array.view(f"u{array.itemsize}")
    return view.reshape(len(array), -1)


def _unpack_array(sparse_rows: int, common: Array, positions: Array, values: Array) -> Array:
    array = np.repeat(common, sparse_rows, axis=0)
    array[positions] = values
    return array
