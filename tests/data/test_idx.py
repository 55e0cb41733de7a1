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


def read(content: bytes, ndim: int = 3) -> npt.NDArray[np.uint8]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some-idx3-ubyte"
        path.write_bytes(content)
        return read_idx(path, ndim)


@pytest.mark.parametrize("content", [PLAIN, GZIPPED], ids=["plain", "gzipped"])
def test_what_was_written_is_read(content: bytes) -> None:
    array = read(content)
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array, CUBE)
    array[0, 0, 0] = 9  # PyTorch warns of arrays that cannot be written


def test_a_gzipped_file_is_known_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "unpacked-by-the-browser.gz"
    path.write_bytes(PLAIN)
    np.testing.assert_array_equal(read_idx(path, 3), CUBE)


@pytest.mark.parametrize("length", range(len(PLAIN)))
def test_a_plain_file_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(DataError, match=r"some-idx3-ubyte: expected .*, got only \d+"):
        read(PLAIN[:length])


@pytest.mark.parametrize("length", range(len(GZIPPED)))
def test_a_gzipped_file_cut_anywhere_is_refused(length: int) -> None:
    with pytest.raises(DataError, match=r"some-idx3-ubyte: expected .*, got .*Nothing was loaded"):
        read(GZIPPED[:length])


@settings(deadline=None)
@given(st.integers(0, len(GZIPPED) - 1), st.integers(0, 7))
def test_a_flipped_bit_in_a_gzipped_file_never_changes_the_array(byte: int, bit: int) -> None:
    content = bytearray(GZIPPED)
    content[byte] ^= 1 << bit
    try:
        array = read(bytes(content))
    except DataError:
        return
    np.testing.assert_array_equal(array, CUBE)  # a header field nobody needs, such as the date


@settings(deadline=None)
@given(st.binary(max_size=60), st.sampled_from([b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00", PLAIN[:6]]))
def test_any_other_bytes_are_refused_in_our_own_words(content: bytes, start: bytes) -> None:
    try:
        array = read(start + content)
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
def test_the_message_says_what_was_expected_and_what_came(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(content)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_a_header_that_promises_the_moon_allocates_nothing(pack: type[bytes]) -> None:
    header = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 2**32 - 1)
    with pytest.raises(DataError, match="bytes of data for shape"):
        read(pack(header + bytes(100)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="absent cannot be read: No such file"):
        read_idx(tmp_path / "absent", 1)
    with pytest.raises(DataError, match="cannot be read"):
        read_idx(tmp_path, 1)
