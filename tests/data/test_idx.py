from __future__ import annotations

import gzip
import struct
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thalweg.core.errors import DataError
from thalweg.data.idx import read_idx

CUBE = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
PLAIN = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 4) + CUBE.tobytes()
GZIPPED = gzip.compress(PLAIN, mtime=0)


def read_bytes_as_idx(content: bytes, ndim: int = 3) -> npt.NDArray[np.uint8]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some-idx3-ubyte"
        path.write_bytes(content)
        return read_idx(path, ndim)


@pytest.mark.parametrize("content", [PLAIN, GZIPPED], ids=["plain", "gzipped"])
def test_plain_and_gzipped_idx_files_are_read(content: bytes) -> None:
    array = read_bytes_as_idx(content)
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array, CUBE)
    array[0, 0, 0] = 9  # PyTorch warns of arrays that cannot be written


def test_gzip_is_detected_by_content_and_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "unpacked-by-the-browser.gz"
    path.write_bytes(PLAIN)
    np.testing.assert_array_equal(read_idx(path, 3), CUBE)


@pytest.mark.parametrize("length", range(len(PLAIN)))
def test_truncated_idx_file_is_rejected(length: int) -> None:
    with pytest.raises(DataError, match=r"some-idx3-ubyte: expected .*, got only \d+"):
        read_bytes_as_idx(PLAIN[:length])


@pytest.mark.parametrize("length", range(len(GZIPPED)))
def test_truncated_gzipped_idx_file_is_rejected(length: int) -> None:
    with pytest.raises(DataError, match=r"some-idx3-ubyte: expected .*, got .*Nothing was loaded"):
        read_bytes_as_idx(GZIPPED[:length])


@settings(deadline=None)
@given(st.integers(0, len(GZIPPED) - 1), st.integers(0, 7))
def test_flipped_bit_in_a_gzipped_idx_file_never_changes_the_array(byte: int, bit: int) -> None:
    content = bytearray(GZIPPED)
    content[byte] ^= 1 << bit
    try:
        array = read_bytes_as_idx(bytes(content))
    except DataError:
        return
    np.testing.assert_array_equal(array, CUBE)  # an unused header field, such as the date


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from([b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00", PLAIN[:6]]))
def test_arbitrary_bytes_raise_only_data_errors(content: bytes, start: bytes) -> None:
    try:
        array = read_bytes_as_idx(start + content)
    except DataError:  # and no other error
        return
    assert array.size == len(start + content) - 16


@pytest.mark.parametrize(
    "content, message",
    [
        (PLAIN + b"x", "expected 24 bytes of data for shape .2, 3, 4., got more than that"),
        (gzip.compress(PLAIN + b"x", mtime=0), "expected 24 bytes of data .* got more than that"),
        (GZIPPED + b"xyz", "expected one gzip stream, got 3 more bytes behind it"),
        (bytes([0, 0, 0x0D, 3]) + PLAIN[4:], r"0x08 \(unsigned byte\), got 0x0d \(float\)"),
        (bytes([0, 0, 0x42, 3]) + PLAIN[4:], r"got 0x42 \(unknown\)"),
        (bytes([0, 0, 8, 1]) + PLAIN[4:], "expected 3 dimensions, got 1"),
        (b"<!DOCTYPE html> a page", "two zero bytes, got 0x3c21"),
        (b"", "expected an IDX header of 16 bytes, got only 0 bytes"),
    ],
)
def test_idx_errors_state_expected_and_actual_content(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_bytes_as_idx(content)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_idx_header_with_a_huge_shape_is_rejected_before_allocation(pack: type[bytes]) -> None:
    header = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1)
    with pytest.raises(DataError, match="bytes of data for shape"):
        read_bytes_as_idx(pack(header + bytes(100)))


def test_unreadable_idx_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent cannot be read: No such file"):
        read_idx(tmp_path / "absent", 1)
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(tmp_path, 1)
