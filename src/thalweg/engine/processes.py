"""What worker processes need: the number of cores, their environment, and shared memory.

Shared memory has no name, so that there is nothing to clean up: the kernel frees it when the last
process that maps it has ended, however it ended.
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


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_environment() -> dict[str, str]:
    """Return the environment variables of a process that computes on one thread.

    By default glibc returns large blocks to the kernel after every step, and the next step causes
    page faults again. With these thresholds a worker that trains LeNet-5 has half as many page
    faults. The first threshold is the largest that every version of glibc accepts.
    """
    return {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
        "MALLOC_TOP_PAD_": str(1 << 26),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class Layout(NamedTuple):
    """Shape and dtype of an array in shared memory."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class SharedMemory:
    """Memory that several processes can read and write through `array`. It starts as zeros."""

    def __init__(self, handle: int, num_bytes: int) -> None:
        """Map the file behind a handle and take ownership of the handle."""
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
        """Copy an array to new shared memory and return it with its layout."""
        layout = Layout(values.shape, values.dtype.str)
        memory = cls.create(layout.num_bytes)
        memory.array(layout)[...] = values
        return memory, layout

    def send(self, connection: Connection, pid: int) -> None:
        send_handle(connection, self._handle, pid)

    def array(self, layout: Layout) -> npt.NDArray[Any]:
        """Return a new array on this memory.

        It stays mapped as long as the array or a view of it exists.
        """
        return np.ndarray(layout.shape, dtype=layout.dtype, buffer=self._map)

    def __del__(self) -> None:
        if hasattr(self, "_map"):
            os.close(self._handle)  # the map stays until the last array on it is gone


def _open_anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("thalweg")
    with tempfile.TemporaryFile() as file:  # has no name, or loses it at once
        return os.dup(file.fileno())
