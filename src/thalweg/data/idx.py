"""The IDX format of MNIST: arrays of unsigned bytes with a small header.

    2 bytes 0 | type code | number of dimensions D | D sizes, 4 bytes each, big-endian | the bytes

Header, exact length and, for gzip files, the checksum are verified before anything is returned.
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.size_limits import check_memory, check_ratio

UNSIGNED_BYTE = 0x08
TYPE_NAMES = {
    0x08: "unsigned byte",
    0x09: "signed byte",
    0x0B: "short",
    0x0C: "int",
    0x0D: "float",
    0x0E: "double",
}
GZIP_MAGIC = b"\x1f\x8b"
GZIP = 16 + zlib.MAX_WBITS  # zlib option: expect a gzip header and checksum
SMALLER = "Use a smaller file"
DEFLATE_LIMIT = 1032  # maximum expansion of a deflate stream; headers that claim more are invalid


def read_idx(path: Path, ndim: int) -> npt.NDArray[np.uint8]:
    """The array of unsigned bytes in an IDX file with `ndim` dimensions, gzipped or not.

    Compression is detected from the first bytes, not from the name: browsers unpack files and keep
    the name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "labels"
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([7, 2, 1]))
    ...     read_idx(path, ndim=1).tolist()
    [7, 2, 1]
    """
    try:
        check_memory(2 * path.stat().st_size, str(path), SMALLER)
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    if content.startswith(GZIP_MAGIC):
        return _from_gzip(content, ndim, path)
    shape = _shape(content, ndim, path)
    start = 4 + 4 * ndim
    _check_length(len(content) - start, shape, path)
    return _array(content[start:], shape)


def _from_gzip(content: bytes, ndim: int, path: Path) -> npt.NDArray[np.uint8]:
    stream = zlib.decompressobj(GZIP)
    try:
        header = stream.decompress(content, 4 + 4 * ndim)
        shape = _shape(header, ndim, path)
        expected = math.prod(shape)
        if expected > DEFLATE_LIMIT * len(content):
            raise _format_error(
                path, f"{expected} bytes of data for shape {shape}", "a far shorter file"
            )
        check_ratio(expected, path)
        check_memory(2 * expected, str(path), SMALLER)
        # One byte more than expected, to detect longer files and to let zlib verify the checksum.
        body = stream.decompress(stream.unconsumed_tail, expected + 1)
    except zlib.error as error:
        raise _format_error(path, "an intact gzip file", f"damaged data ({error})") from error
    _check_length(len(body), shape, path)
    if not stream.eof:
        raise _format_error(path, "a whole gzip file", "one that breaks off inside its checksum")
    if stream.unused_data:
        raise _format_error(
            path, "one gzip stream", f"{len(stream.unused_data)} more bytes behind it"
        )
    return _array(body, shape)


def _shape(header: bytes, ndim: int, path: Path) -> tuple[int, ...]:
    length = 4 + 4 * ndim
    if len(header) < length:
        raise _format_error(path, f"an IDX header of {length} bytes", f"only {len(header)} bytes")
    zero, code, dimensions = struct.unpack(">HBB", header[:4])
    if zero != 0:
        raise _format_error(
            path, "an IDX file, starting with two zero bytes", f"0x{header[:2].hex()}"
        )
    if code != UNSIGNED_BYTE:
        name = TYPE_NAMES.get(code, "unknown")
        raise _format_error(path, "type code 0x08 (unsigned byte)", f"0x{code:02x} ({name})")
    if dimensions != ndim:
        raise _format_error(path, f"{ndim} dimensions", f"{dimensions}")
    return struct.unpack(f">{ndim}I", header[4:length])


def _check_length(received: int, shape: tuple[int, ...], path: Path) -> None:
    expected = math.prod(shape)
    if received < expected:
        raise _format_error(
            path, f"{expected} bytes of data for shape {shape}", f"only {received}: it is truncated"
        )
    if received > expected:
        raise _format_error(path, f"{expected} bytes of data for shape {shape}", "more than that")


def _array(body: bytes, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytearray(body), dtype=np.uint8).reshape(shape)  # writable, unlike bytes


def _format_error(path: Path, expected: str, received: str) -> DataError:
    return DataError(
        f"{path}: expected {expected}, got {received}. "
        "Nothing was loaded; replace the file, or delete it and let it be fetched again."
    )
