from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from thalweg.core.trees import Array, tree_from_bytes, tree_to_bytes
from thalweg.core.vectors import freeze
from thalweg.engine.blobs import Blobs
from thalweg.engine.sparse_arrays import MIN_ROWS, SparseArray, pack_sparse, unpack_sparse


class Table(NamedTuple):
    seen: Array
    rows: list[Array]


def table_with(fill: float, shape: tuple[int, ...], dtype: str, changed: list[int]) -> Array:
    array = np.full(shape, fill, dtype=dtype)
    array[changed] = 7
    return array


@pytest.mark.parametrize(
    ("fill", "shape", "dtype"),
    [
        (0, (MIN_ROWS,), "int64"),
        (np.nan, (MIN_ROWS + 5,), "float64"),
        (-1, (9000, 3), "float32"),
        (False, (5000,), "bool"),
        (0.5, (5000, 2, 4), "float64"),
    ],
)
def test_mostly_equal_rows_are_stored_once(fill: float, shape: tuple[int, ...], dtype: str) -> None:
    array = table_with(fill, shape, dtype, [0, 17, shape[0] - 1])
    packed = pack_sparse(array)
    assert isinstance(packed, SparseArray)
    assert packed.positions.tolist() == [0, 17, shape[0] - 1]
    found = unpack_sparse(tree_from_bytes(tree_to_bytes(packed)))
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()
    assert found.shape == shape


def test_all_parts_of_a_tree_are_restored() -> None:
    array = table_with(np.nan, (5000,), "float64", [3])
    tree = {"a": Table(array, [array, np.arange(4)]), "n": 2}
    packed = pack_sparse(tree)
    assert isinstance(packed["a"], Table)
    assert isinstance(packed["a"].rows[0], SparseArray)
    found = unpack_sparse(tree_from_bytes(tree_to_bytes(packed)))
    assert found["a"]["seen"].tobytes() == array.tobytes()
    assert found["a"]["rows"][0].tobytes() == array.tobytes()
    assert found["a"]["rows"][1].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(MIN_ROWS - 1),
        np.arange(10_000),
        np.arange(10_000) % 2,
        freeze(np.zeros(10_000)),
        np.zeros((10_000, 0)),
        np.array(3.0),
    ],
    ids=["short", "different", "half", "frozen", "empty", "number"],
)
def test_other_arrays_stay_as_they_are(array: Array) -> None:
    assert pack_sparse(array) is array


def test_nan_with_other_bits_and_negative_zero_keep_their_bits() -> None:
    array = np.zeros(10_000)
    array[5] = -0.0
    packed = pack_sparse(array)
    assert packed.positions.tolist() == [5]
    assert unpack_sparse(tree_from_bytes(tree_to_bytes(packed))).tobytes() == array.tobytes()


def test_a_checkpoint_does_not_grow_with_idle_clients(tmp_path: Path) -> None:
    sizes = []
    for number in (10_000, 1_000_000):
        path = tmp_path / f"{number}.safetensors"
        tree = {
            "times_present": table_with(0, (number,), "int64", [1, 5]),
            "known": {"loss": table_with(np.nan, (number,), "float64", [1, 5])},
        }
        blobs = Blobs(tmp_path / "blobs")
        digests = blobs.write(path, tree)
        found = blobs.read(path, digests)
        assert found["known"]["loss"].tobytes() == tree["known"]["loss"].tobytes()
        sizes.append(path.stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 16
