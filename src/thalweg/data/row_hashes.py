"""Hashes of rows, which find rows that are equal."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.data.base import Dataset

Hashes = npt.NDArray[np.uint64]
MAX_HASHED = 2_000_000  # training rows; the hashes of more rows are not stored


def hash_rows(*parts: npt.NDArray[np.generic]) -> Hashes:
    """Return (n,) one number per row of arrays (n, ...); equal rows have equal numbers.

    >>> first, second, third = hash_rows(np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]))
    >>> bool(first == third), bool(first == second)
    (True, False)
    """
    hashes: Hashes = np.zeros(len(parts[0]), dtype=np.uint64)
    factor = np.uint64(0x9E3779B97F4A7C15)
    for part in parts:
        whole = np.ascontiguousarray(part.reshape(len(part), -1))
        width = whole.shape[1] * whole.itemsize
        if len(whole) == 0 or width == 0:
            continue
        padded = np.zeros((len(whole), -(-width // 8) * 8), dtype=np.uint8)
        padded[:, :width] = whole.view(np.uint8).reshape(len(whole), width)
        for column in padded.view(np.uint64).T:
            hashes = (hashes ^ column) * factor
            hashes ^= hashes >> np.uint64(29)
    return hashes


def hash_training_rows(data: Dataset) -> Hashes | None:
    """Return the different hashes of the training samples, without targets.

    None: the samples stay in a memory-mapped file, or they are too many.
    """
    if data.index is not None or len(data.x) > MAX_HASHED:
        return None
    return np.unique(hash_rows(data.x))
