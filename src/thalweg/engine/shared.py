"""Arrays that several processes see, in memory without a name.

There is nothing to clean up: the kernel frees the memory when the last process that maps it is gone,
however it went.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from math import prod
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Layout(NamedTuple):
    """What another process must know to read the bytes."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class SharedMemory:
    """Some bytes shared between processes; `array` looks at them. Starts as zeros."""

    def __init__(self, handle: int, num_bytes: int) -> None:
        """Map the file behind a handle, which is ours from here on."""
        self._handle = handle
        self.num_bytes = num_bytes
        self._map = mmap.mmap(handle, max(num_bytes, 1))

    @classmethod
    def create(cls, num_bytes: int) -> SharedMemory:
        handle = _open_anonymous_file()
        try:
            os.ftruncate(handle, max(num_bytes, 1))
            return cls(handle, num_bytes)
        except BaseException:
            os.close(handle)
            raise

    @classmethod
    def from_array(cls, values: npt.NDArray[Any]) -> tuple[SharedMemory, Layout]:
        """A copy of an array, and how to read it."""
        layout = Layout(values.shape, values.dtype.str)
        memory = cls.create(layout.num_bytes)
        memory.array(layout)[...] = values
        return memory, layout

    def send(self, connection: Connection, pid: int) -> None:
        send_handle(connection, self._handle, pid)

    def array(self, layout: Layout) -> npt.NDArray[Any]:
        """A new array object on these bytes; the bytes live as long as it, or any view of it, does."""
        return np.ndarray(layout.shape, dtype=layout.dtype, buffer=self._map)

    def __del__(self) -> None:
        if hasattr(self, "_map"):
            os.close(self._handle)  # the map stays until the last array on it is gone


def _open_anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("thalweg")
    with tempfile.TemporaryFile() as file:  # has no name, or loses it at once
        return os.dup(file.fileno())
