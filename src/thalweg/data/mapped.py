"""Arrays in files that are memory-mapped: only the rows that are used are read."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Ints

NUM_CHECKED = 256  # rows of a memory-mapped array that its checksum covers


class FilePart(NamedTuple):
    """The values of a memory-mapped array: a part of a file, in C order."""

    path: str
    offset: int  # bytes
    shape: tuple[int, ...]
    dtype: str

    def open(self) -> npt.NDArray[Any]:
        """Map the same values, for example in another process."""
        mapped: Any = np.memmap(
            self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=self.shape
        )
        return np.asarray(mapped)


def find_file_part(array: npt.NDArray[Any]) -> FilePart | None:
    """Return the file of a memory-mapped array in C order; None: the array is in memory."""
    root: Any = None
    owner: Any = array
    while isinstance(owner, np.ndarray):
        root = owner if isinstance(owner, np.memmap) else root
        owner = owner.base
    if root is None or root.filename is None or not array.flags.c_contiguous:
        return None
    offset = int(root.offset) + array.ctypes.data - root.ctypes.data
    return FilePart(str(root.filename), offset, array.shape, array.dtype.str)


def is_mapped(array: npt.NDArray[Any]) -> bool:
    """Return whether the values of an array are in a memory-mapped file, in C order."""
    return find_file_part(array) is not None


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
