"""Arrays in files that are memory-mapped: only the rows that are used are read."""

from __future__ import annotations

import mmap
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Ints

NUM_CHECKED = 256  # rows of a memory-mapped array that its checksum covers


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Return whether the values of an array are in a memory-mapped file."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        if isinstance(owner, np.memmap):
            return True
        owner = owner.base
    return isinstance(owner, mmap.mmap)


def checksum_array(array: npt.NDArray[Any], start: int = 0) -> int:
    """Return a checksum of an array, which continues that of other arrays (`start`).

    Of a memory-mapped array, it covers the shape and 256 rows at equal distances, so that a large
    file is not read as a whole.
    """
    if is_mapped(array):
        start = zlib.crc32(repr((array.shape, array.dtype.str)).encode(), start)
        array = array[spread_rows(len(array), NUM_CHECKED)]
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, start)


def spread_rows(num_rows: int, limit: int) -> Ints:
    """Return at most `limit` row numbers at equal distances, the first and the last included.

    >>> spread_rows(10, 4).tolist(), spread_rows(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if num_rows <= limit:
        return np.arange(num_rows)
    return np.linspace(0, num_rows - 1, limit).astype(np.int64)
