from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from thalweg.core.errors import DataError
from thalweg.data import Cinic10, image_files
from thalweg.data.cifar10 import CLASS_NAMES

COLOURS = {"train": 1, "valid": 2, "test": 3}


def write(folder: Path, parts: tuple[str, ...] = ("train", "valid", "test")) -> Path:
    """Write two images per class; the colour encodes part, class and number."""
    for part in parts:
        for c, name in enumerate(CLASS_NAMES):
            (folder / part / name).mkdir(parents=True)
            for i in (1, 0):
                image = Image.new("RGB", (32, 32), (COLOURS[part], c, i))
                image.save(folder / part / name / f"n{i}.png")
    return folder


@pytest.mark.parametrize("layout", ["", "cinic10", "CINIC-10"])
def test_cinic10_folder_is_found_in_every_layout(tmp_path: Path, layout: str) -> None:
    write(tmp_path / "mine" / layout)
    data = Cinic10().load(tmp_path / "mine", seed=0)
    assert (data.x.shape, data.x_test.shape) == ((20, 32, 32, 3), (20, 32, 32, 3))
    assert (data.x.dtype, data.y.dtype) == (np.uint8, np.int64)
    assert data.x[5, 7, 7].tolist() == [1, 2, 1]  # the second bird
    assert data.y.tolist() == data.y_test.tolist() == [c for c in range(10) for _ in range(2)]
    assert set(data.x_test[..., 0].ravel()) == {3}
    assert data.class_names[2] == "bird"


def test_cinic10_validation_part_can_be_included(tmp_path: Path) -> None:
    write(tmp_path / "cinic10")
    data = Cinic10(include_valid=True).load(tmp_path, seed=0)
    assert data.x[:, 0, 0, 0].tolist() == [1] * 20 + [2] * 20
    assert len(data.y) == 40


def test_cinic10_validation_part_is_optional(tmp_path: Path) -> None:
    write(tmp_path / "cinic10", parts=("train", "test"))
    assert len(Cinic10().load(tmp_path, seed=0).x) == 20
    with pytest.raises(DataError, match="only 20 of the 30 parts of CINIC-10; missing: valid/airp"):
        Cinic10(include_valid=True).load(tmp_path, seed=0)


def test_cinic10_images_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "cinic10")
    first = Cinic10().load(tmp_path, seed=0)
    assert len(list((tmp_path / "cache" / "cinic10").iterdir())) == 2

    def fail_to_decode(*files: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(image_files, "_decode_images", fail_to_decode)
    second = Cinic10().load(tmp_path, seed=0)
    np.testing.assert_array_equal(first.x, second.x)
    np.testing.assert_array_equal(first.y_test, second.y_test)
    assert second.x.flags.writeable


def test_changed_image_invalidates_the_cache(tmp_path: Path) -> None:
    folder = write(tmp_path / "cinic10")
    Cinic10().load(tmp_path, seed=0)
    file = folder / "train" / "cat" / "n0.png"
    Image.new("RGB", (32, 32), (99, 3, 0)).save(file)
    os.utime(file, ns=(10**18, 10**18))
    assert Cinic10().load(tmp_path, seed=0).x[6, 0, 0, 0] == 99


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"cut"])
def test_damaged_cache_is_rebuilt(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path / "cinic10")
    whole = Cinic10().load(tmp_path, seed=0)
    for file in (tmp_path / "cache" / "cinic10").iterdir():
        file.write_bytes(file.read_bytes()[:500] if damage == b"cut" else damage)
    np.testing.assert_array_equal(Cinic10().load(tmp_path, seed=0).x, whole.x)


def test_unwritable_cache_is_ignored(tmp_path: Path) -> None:
    write(tmp_path / "cinic10")
    (tmp_path / "cache").write_text("in the way")
    assert len(Cinic10().load(tmp_path, seed=0).x) == 20


def test_cinic10_grey_images_become_rgb(tmp_path: Path) -> None:
    file = write(tmp_path / "cinic10") / "test" / "dog" / "n1.png"
    Image.new("L", (32, 32), 7).save(file)
    assert Cinic10().load(tmp_path, seed=0).x_test[11, 3, 3].tolist() == [7, 7, 7]


@pytest.mark.parametrize("fault", ["larger", "text", "cut", "jpeg"])
def test_invalid_cinic10_images_are_rejected_with_their_name(tmp_path: Path, fault: str) -> None:
    file = write(tmp_path / "cinic10") / "train" / "frog" / "n1.png"
    if fault == "larger":
        Image.new("RGB", (33, 32)).save(file)
    elif fault == "text":
        file.write_text("not an image")
    elif fault == "cut":
        file.write_bytes(file.read_bytes()[:60])
    else:
        Image.new("RGB", (32, 32)).save(file, format="JPEG")
    with pytest.raises(DataError, match=r"frog.n1.png: expected a PNG image of 32 x 32 pixels"):
        Cinic10().load(tmp_path, seed=0)


def test_cinic10_class_without_images_is_rejected(tmp_path: Path) -> None:
    for file in (write(tmp_path / "cinic10") / "train" / "ship").iterdir():
        file.rename(file.with_suffix(".txt"))
    with pytest.raises(DataError, match=r"ship: expected images \(\*.png\), got none"):
        Cinic10().load(tmp_path, seed=0)


def test_missing_cinic10_folders_give_one_message_with_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)CINIC-10 is not on this machine.*--data-dir"):
        Cinic10().load(tmp_path, seed=0)
