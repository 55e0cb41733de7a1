"""The inputs of a device's samples: a file with room for all that it can ever hold, and never more."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Ints
from thalweg.network.edge.database import damaged_folder_error, sync, translate_errors


class Slots:
    """Places 0 .. num - 1 of one size, in a file that is mapped into memory.

    A client's row is the number of a slot, so that what trains on rows of a data set needs to know nothing of this.
    Whoever writes into a slot must be the only one who uses it.

    All space is claimed when the file is made: a disk that fills up later cannot stop the device from receiving.
    """

    def __init__(self, file: Path, num: int, shape: tuple[int, ...], dtype: str) -> None:
        """Open the file, or make it; one of another size is made larger, but never smaller."""
        self.num, self._folder = num, file.parent
        self._bytes = np.dtype(dtype).itemsize * math.prod(shape)
        with translate_errors(self._folder):
            self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _allocate(self._file, num * self._bytes)
                sync(self._folder)
                # For reading alone: writing to a mapped file on a disk with an error ends the process.
                self.x: npt.NDArray[Any] = np.memmap(file, dtype, "r", shape=(num, *shape))
            except BaseException:
                os.close(self._file)
                raise

    def write(self, slots: Ints, inputs: npt.NDArray[Any]) -> list[int]:
        """Put inputs (B, *shape) into slots (B,); on the disk when it returns the checksum of each."""
        contents = [np.ascontiguousarray(each).tobytes() for each in inputs]
        with translate_errors(self._folder):
            for slot, content in zip(slots.tolist(), contents, strict=True):
                _put(self._file, content, slot * self._bytes)
            os.fsync(self._file)
        return list(map(crc32, contents))

    def check(self, slots: Ints, checksums: list[int]) -> None:
        """Refuse a file in which somebody else has written."""
        for slot, checksum in zip(slots.tolist(), checksums, strict=True):
            if crc32(self.x[slot].tobytes()) != checksum:
                raise damaged_folder_error(self._folder, f"sample {slot} is not what was written")

    def close(self) -> None:
        """Nobody writes any more; what is mapped goes when nobody looks at it any more."""
        os.close(self._file)


def _put(file: int, content: bytes, start: int) -> None:
    """All of it, or an error."""
    done = 0
    while done < len(content):
        wrote = os.pwrite(file, content[done:], start + done)
        if wrote == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += wrote


def _allocate(file: int, size: int) -> None:
    """Claim the space now."""
    have = os.fstat(file).st_size
    if have >= size:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        _put(file, bytes(size - have), have)  # where files cannot be told to grow
