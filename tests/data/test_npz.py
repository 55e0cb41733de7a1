"""Tests of reading .npz archives of users; see also test_arrays.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from thalweg.core.errors import DataError, UnknownName
from thalweg.data.npz import read_npz


def test_npz_arrays_are_read_by_name(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", one=np.arange(3), two=np.array(["x"]))
    got = read_npz(tmp_path / "a.npz", required=("one",), optional=("two", "three"))
    assert {name: array.tolist() for name, array in got.items()} == {"one": [0, 1, 2], "two": ["x"]}


def test_missing_and_unknown_npz_arrays_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=np.arange(3))
    with pytest.raises(DataError, match="expected one and two, but two is missing"):
        read_npz(tmp_path / "a.npz", required=("one", "two"))
    with pytest.raises(UnknownName, match="'one'; known: two"):
        read_npz(tmp_path / "a.npz", required=("two",))


def test_pickled_arrays_and_other_files_are_rejected(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="one is not an array of numbers or text"):
        read_npz(tmp_path / "a.npz", required=("one",))
    (tmp_path / "b.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"b.npz is not a readable .npz file"):
        read_npz(tmp_path / "b.npz", required=("one",))


def test_archive_with_a_damaged_name_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, x=np.zeros(3))
    content = file.read_bytes()
    place = content.rindex(b"x.npy")  # in the directory of the archive
    flags = content.rindex(b"PK\x01\x02") + 9
    damaged = bytearray(content[:place] + b"\xfc.npy" + content[place + 5 :])
    damaged[flags] |= 8  # the name is UTF-8
    file.write_bytes(damaged)
    with pytest.raises(DataError, match=r"is not a readable \.npz file"):
        read_npz(file, ["x"])
