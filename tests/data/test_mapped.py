from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import thalweg
from thalweg.core.errors import ThalwegError
from thalweg.core.transforms import Mirrored
from thalweg.core.views import View
from thalweg.data import ArrayFolder, Dataset
from thalweg.data.in_memory import compute_checksum
from thalweg.data.mapped import checksum_array, find_file_part, is_mapped

N = 40


@pytest.fixture
def images() -> npt.NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 255, (N, 6, 6, 3), dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path, images: npt.NDArray[np.uint8]) -> Path:
    np.save(tmp_path / "x.npy", images)
    np.save(tmp_path / "y.npy", np.arange(N) % 4)
    np.save(tmp_path / "client.npy", np.arange(N) % 5)
    return tmp_path


def test_mapped_images_give_the_same_data_as_those_in_memory(
    folder: Path, images: npt.NDArray[np.uint8]
) -> None:
    mapped = ArrayFolder(str(folder)).load(None, 0)
    plain = Dataset.from_arrays(images, np.arange(N) % 4, client=np.arange(N) % 5)
    rows = np.array([[0, 5], [31, 2]])
    np.testing.assert_array_equal(mapped.samples("train", rows), plain.samples("train", rows))
    test = np.arange(len(plain.y_test))
    np.testing.assert_array_equal(mapped.samples("test", test), plain.x_test)
    np.testing.assert_array_equal(mapped.y, plain.y)
    assert mapped.mean == plain.mean
    assert mapped.std == plain.std


def test_mapped_images_are_not_copied(folder: Path) -> None:
    data = ArrayFolder(str(folder)).load(None, 0)
    assert is_mapped(data.x)
    assert is_mapped(data.x_test)
    assert data.index is not None
    assert len(data.index) == len(data.y) == 32
    assert not is_mapped(data.samples("train", np.arange(3)))


def test_mapped_array_passed_from_python_stays_mapped(folder: Path) -> None:
    x = np.load(folder / "x.npy", mmap_mode="r")
    data = Dataset.from_arrays(x, np.arange(N) % 2, X_test=x[:4], y_test=[0, 1, 0, 1])
    assert is_mapped(data.x)
    assert is_mapped(data.x_test)
    np.testing.assert_array_equal(data.samples("test", np.arange(4)), x[:4])
    np.testing.assert_array_equal(data.samples("train", np.arange(N)), x)


def test_a_part_of_a_file_can_be_opened_again(folder: Path) -> None:
    x = np.load(folder / "x.npy", mmap_mode="r")
    for part in (x, x[3:7], np.asarray(x)[5:][..., None]):
        found = find_file_part(part)
        assert found is not None
        np.testing.assert_array_equal(found.open(), part)
    assert find_file_part(x[::2]) is None  # not in C order: copied
    assert find_file_part(x[0:3].copy()) is None


def test_views_of_mapped_images(folder: Path, images: npt.NDArray[np.uint8]) -> None:
    views = (View(), View(transform=Mirrored()))
    mapped = replace(ArrayFolder(str(folder)).load(None, 0), views=views)
    plain = replace(Dataset.from_arrays(images, np.arange(N) % 4), views=views)
    rows = np.array([0, 31, 32, 63])
    np.testing.assert_array_equal(mapped.samples("train", rows), plain.samples("train", rows))


def test_a_run_is_the_same_as_with_images_in_memory(
    folder: Path, images: npt.NDArray[np.uint8]
) -> None:
    plain = Dataset.from_arrays(images, np.arange(N) % 4, client=np.arange(N) % 5)
    runs = [
        thalweg.run("fedavg", data, rounds=2, workers=workers)
        for data, workers in ((plain, 1), (folder, 1), (folder, 2))
    ]
    losses = [run.metrics[-1]["test_loss"] for run in runs]
    assert losses[0] == losses[1] == losses[2]


def test_checksum_covers_rows_at_equal_distances(tmp_path: Path) -> None:
    x: Any = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint8, (600, 2))
    before = checksum_array(x)
    x[599] = 1  # the last row is covered
    assert checksum_array(x) != before
    assert checksum_array(x) == checksum_array(np.load(tmp_path / "x.npy", mmap_mode="r"))
    assert checksum_array(x[:-1]) != checksum_array(x)


def test_data_sets_of_mapped_images_have_a_checksum(folder: Path) -> None:
    data = ArrayFolder(str(folder)).load(None, 0)
    assert compute_checksum(data) == compute_checksum(data)


@pytest.mark.parametrize(
    "remove, add, text",
    [
        ("x.npy", None, "expected x.npy and y.npy.*got client.npy, y.npy"),
        (None, "labels.npy", "got client.npy, labels.npy, x.npy, y.npy"),
    ],
)
def test_missing_and_unknown_files_are_rejected(
    folder: Path, remove: str | None, add: str | None, text: str
) -> None:
    if remove:
        (folder / remove).unlink()
    if add:
        np.save(folder / add, np.arange(N))
    with pytest.raises(ThalwegError, match=text):
        ArrayFolder(str(folder)).load(None, 0)


def test_damaged_file_and_missing_folder_are_explained(folder: Path) -> None:
    (folder / "y.npy").write_bytes(b"no array")
    with pytest.raises(ThalwegError, match=r"y\.npy is not a readable \.npy file"):
        ArrayFolder(str(folder)).load(None, 0)
    with pytest.raises(ThalwegError, match="there is no folder 'nowhere'"):
        ArrayFolder("nowhere").load(None, 0)


def test_channels_first_are_rejected_with_a_remedy() -> None:
    x = np.zeros((10, 3, 8, 8), dtype=np.uint8)
    with pytest.raises(ThalwegError, match=r"channels first. Use numpy\.moveaxis"):
        Dataset.from_arrays(x, [0, 1] * 5)
