"""Storage for the inputs of a device's samples: a preallocated file."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from thalweg.core.files import sync_folder
from thalweg.core.types import Ints
from thalweg.network.edge.database import damaged_folder_error, translate_errors


class Slots:
    """Slots 0 .. num - 1 of equal size in a memory-mapped file.

    A client's row is the number of a slot, so that training code can treat the file as a data set.
    A slot may be written only while it is not in use.

    All space is allocated when the file is created, so that a full disk cannot stop the device
    later.
    """

    def __init__(self, file: Path, num: int, shape: tuple[int, ...], dtype: str) -> None:
        """Open or create the file; a smaller file is enlarged, a larger one is not reduced."""
        self.num, self._folder = num, file.parent
        self._bytes = np.dtype(dtype).itemsize * math.prod(shape)
        with translate_errors(self._folder):
            self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _allocate(self._file, num * self._bytes)
                sync_folder(self._folder)
                # Read-only mapping: writing to a mapped file on a failing disk would kill the
                # process.
                self.x: npt.NDArray[Any] = np.memmap(file, dtype, "r", shape=(num, *shape))
            except BaseException:
                os.close(self._file)
                raise

    def write(self, slots: Ints, inputs: npt.NDArray[Any]) -> list[int]:
        """Write inputs (B, *shape) to slots (B,) and flush them; returns their checksums."""
        contents = [np.ascontiguousarray(each).tobytes() for each in inputs]
        with translate_errors(self._folder):
            for slot, content in zip(slots.tolist(), contents, strict=True):
                _put(self._file, content, slot * self._bytes)
            os.fsync(self._file)
        return list(map(crc32, contents))

    def check(self, slots: Ints, checksums: list[int]) -> None:
        """Reject a file that was changed by another program."""
        for slot, checksum in zip(slots.tolist(), checksums, strict=True):
            if crc32(self.x[slot].tobytes()) != checksum:
                raise damaged_folder_error(
                    self._folder, f"the contents of sample {slot} have changed"
                )

    def close(self) -> None:
        """Close the file; mappings end with their last reference."""
        os.close(self._file)


def _put(file: int, content: bytes, start: int) -> None:
    """Write all bytes or raise an error."""
    done = 0
    while done < len(content):
        wrote = os.pwrite(file, content[done:], start + done)
        if wrote == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += wrote


def _allocate(file: int, size: int) -> None:
    """Allocate the space."""
    have = os.fstat(file).st_size
    if have >= size:
        return
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        _put(file, bytes(size - have), have)  # for systems without preallocation
