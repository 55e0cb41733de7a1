from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from thalweg.core.errors import DataError
from thalweg.data import Svhn

LABELS = {"train": [1, 10, 9], "test": [10, 2], "extra": [5]}


def images(part: str) -> np.ndarray:
    """Return (32, 32, 3, n) images whose pixels encode part, row and column."""
    n = len(LABELS[part])
    x = np.zeros((32, 32, 3, n), dtype=np.uint8)
    x[:, :, 0] = np.arange(32)[:, None, None]
    x[:, :, 1] = np.arange(32)[:, None]
    x[:, :, 2] = 10 * list(LABELS).index(part) + np.arange(n)
    return x


def write(folder: Path, parts: tuple[str, ...] = ("train", "test"), **changes: Any) -> Path:
    """Write the files; `changes` replace arrays of the training part."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        arrays = {"X": images(part), "y": np.array(LABELS[part], dtype=np.uint8)[:, None]}
        if part == "train":
            arrays = {k: v for k, v in (arrays | changes).items() if v is not None}
        savemat(folder / f"{part}_32x32.mat", arrays, do_compression=True)
    return folder


@pytest.mark.parametrize("layout", ["", "svhn", "SVHN"])
def test_svhn_files_are_found_in_every_layout(tmp_path: Path, layout: str) -> None:
    write(tmp_path / "mine" / layout)
    data = Svhn().load(tmp_path / "mine", seed=0)
    assert (data.x.shape, data.x_test.shape) == ((3, 32, 32, 3), (2, 32, 32, 3))
    assert (data.x.dtype, data.y.dtype) == (np.uint8, np.int64)
    assert data.x[2, 7, 30].tolist() == [7, 30, 2]  # row, column, the third of the training part
    assert data.x_test[1, 31, 0].tolist() == [31, 0, 11]
    assert data.x.flags.c_contiguous
    assert data.input_shape == (3, 32, 32)


def test_svhn_label_10_is_digit_0(tmp_path: Path) -> None:
    data = Svhn().load(write(tmp_path), seed=0)
    assert data.y.tolist() == [1, 0, 9]
    assert data.y_test.tolist() == [0, 2]
    assert data.class_names[int(data.y[1])] == "0"


def test_svhn_labels_may_be_floats(tmp_path: Path) -> None:
    write(tmp_path, y=np.array([[3.0], [10.0], [1.0]]))
    assert Svhn().load(tmp_path, seed=0).y.tolist() == [3, 0, 1]


def test_svhn_extra_images_can_be_included(tmp_path: Path) -> None:
    write(tmp_path / "svhn", parts=("train", "test", "extra"))
    data = Svhn(include_extra=True).load(tmp_path, seed=0)
    assert data.y.tolist() == [1, 0, 9, 5]
    assert data.x[:, 0, 0, 2].tolist() == [0, 1, 2, 20]
    assert len(data.y_test) == 2


def test_svhn_extra_file_is_optional(tmp_path: Path) -> None:
    write(tmp_path / "svhn")
    assert len(Svhn().load(tmp_path, seed=0).y) == 3
    with pytest.raises(DataError, match=r"only 2 of the 3 parts of SVHN; missing: extra_32x32.mat"):
        Svhn(include_extra=True).load(tmp_path, seed=0)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"X": None}, "expected the arrays X and y, but X is missing"),
        ({"X": np.zeros((3, 32, 32, 3), np.uint8)}, r"shape \(32, 32, 3, n\), got uint8 .*\(3, 32"),
        ({"X": images("train").astype(float)}, "expected X to be uint8 .*, got float64"),
        ({"X": images("train")[..., 0]}, r"got uint8 of shape \(32, 32, 3\)"),
        ({"X": images("train")[..., :2]}, r"y to be numbers of shape \(2, 1\), .* \(3, 1\)"),
        ({"X": np.zeros((32, 32, 3, 0), np.uint8)}, "expected images, got none"),
        ({"y": np.array([[1], [0], [2]])}, "labels 1 to 10, .* got 0 at sample 1"),
        ({"y": np.array([[1], [2], [11]])}, "labels 1 to 10, .* got 11 at sample 2"),
        ({"y": np.array([[1.5], [2], [3]])}, "labels 1 to 10, .* got 1.5 at sample 0"),
        ({"y": np.array(["a", "b", "c"])[:, None]}, "expected y to be numbers"),
    ],
)
def test_invalid_svhn_arrays_are_rejected(tmp_path: Path, changes: Any, message: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(DataError, match=f"train_32x32.mat: .*{message}"):
        Svhn().load(tmp_path, seed=0)


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "flipped"])
def test_damaged_svhn_files_are_rejected(tmp_path: Path, damage: str) -> None:
    file = write(tmp_path) / "test_32x32.mat"
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[200] ^= 0xFF
    file.write_bytes(
        {"empty": b"", "text": b"<html>not found</html>" * 20, "cut": content[:250]}.get(
            damage, bytes(content)
        )
    )
    with pytest.raises(DataError, match=r"test_32x32.mat is not a readable MATLAB file"):
        Svhn().load(tmp_path, seed=0)


def test_missing_svhn_files_give_one_message_with_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)SVHN is not on this machine.*--data-dir.*svhn"):
        Svhn().locate(tmp_path)
