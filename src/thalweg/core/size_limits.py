"""Limits on the size of data, checked before memory is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from thalweg.core.errors import DataError

MEMORY_SHARE = 0.5  # of the memory of this machine that one data set may take
SAFE_BYTES = 256 << 20  # an archive of at most this size is never suspicious
MAX_RATIO = 200  # of an archive's size to that of its file, above SAFE_BYTES
MAX_TEXT_BYTES = 64 << 20  # of tables that describe clients over time, and of other text files
MAX_COLUMNS = 20_000  # of a table; each takes about 10 kB while it is read
FOLDER = "Write the arrays to a folder of .npy files (numpy.save), which are not read as a whole"


def get_memory_bytes() -> int:
    """Return the size of the memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(num_bytes: int, what: str, remedy: str) -> None:
    """Reject data that would take more than half of the memory."""
    most = int(MEMORY_SHARE * get_memory_bytes())
    if num_bytes > most:
        raise DataError(
            f"{what} needs {format_bytes(num_bytes)} of memory, but at most {format_bytes(most)} "
            f"(half of this machine's memory) is allowed. {remedy}. Nothing was loaded."
        )


def check_ratio(num_bytes: int, file: Path) -> None:
    """Reject a compressed file that is far larger than its size suggests."""
    size = max(file.stat().st_size, 1)
    if num_bytes > SAFE_BYTES and num_bytes > MAX_RATIO * size:
        raise DataError(
            f"{file} has {format_bytes(size)} and claims to contain {format_bytes(num_bytes)}, "
            f"more than {MAX_RATIO} times as much; it may be damaged or hostile. If it is neither, "
            "write it without compression (numpy.savez, or Parquet without compression and "
            "dictionaries), or as a folder of .npy files. Nothing was loaded."
        )


def check_columns(count: int, file: Path) -> None:
    """Reject a table with too many columns."""
    if count > MAX_COLUMNS:
        raise DataError(
            f"{file} has {count:,} columns or more, at most {MAX_COLUMNS:,} are allowed. {FOLDER}. "
            "Nothing was loaded."
        )


def check_text_file(file: Path) -> None:
    """Reject a text file that is too large to be what it should be."""
    size = file.stat().st_size
    if size > MAX_TEXT_BYTES:
        raise DataError(
            f"{file} has {format_bytes(size)}, at most {format_bytes(MAX_TEXT_BYTES)} is allowed. "
            "Is it the right file? Nothing was loaded."
        )


def format_bytes(num_bytes: int) -> str:
    """Return a size in a unit of three digits or less.

    >>> format_bytes(512), format_bytes(1_900_000_000)
    ('512 bytes', '1.9 GB')
    """
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    for unit, size in (("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12)):
        if num_bytes < 1000 * size or unit == "TB":
            return f"{num_bytes / size:.3g} {unit}"
    raise AssertionError
