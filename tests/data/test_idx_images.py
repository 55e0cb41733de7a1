from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import DataError
from thalweg.data.download import RemoteFile
from thalweg.data.fashion_mnist import FASHION_MNIST
from thalweg.data.idx_images import NUM_DIMENSIONS, find_idx_files, list_file_names, load_images
from thalweg.data.mnist import MNIST

Write = Callable[..., dict[str, Any]]


def rewrite(path: Path, change: Callable[[bytearray], object]) -> None:
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)


@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("layout", ["", "mnist", "MNIST/raw"])
def test_every_file_name_and_layout_is_found(
    tmp_path: Path, write_images: Write, layout: str, mark: str, end: str
) -> None:
    written = write_images(tmp_path / "mine" / layout, mark=mark, end=end)
    data = load_images(MNIST, tmp_path / "mine")
    np.testing.assert_array_equal(data.x[..., 0], written["train-images"])
    np.testing.assert_array_equal(data.y, written["train-labels"])
    np.testing.assert_array_equal(data.x_test[..., 0], written["t10k-images"])
    np.testing.assert_array_equal(data.y_test, written["t10k-labels"])
    assert (data.x.dtype, data.y.dtype) == (np.uint8, np.int64)
    assert data.input_shape == (1, 28, 28)


def test_environment_variable_and_default_folders_are_searched(
    tmp_path: Path, write_images: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {tmp_path / "home/data/mnist": 3, tmp_path / "cache/mnist": 4, tmp_path / "variable": 5}
    write_images(Path("data/MNIST/raw"), num_train=2)
    assert len(load_images(MNIST, None).x) == 2
    for folder, n in sizes.items():  # each is better than the one before
        write_images(folder, num_train=n)
        if folder.name == "variable":
            monkeypatch.setenv("THALWEG_DATA", str(folder))
        assert len(load_images(MNIST, None).x) == n


def test_unpacked_files_are_preferred_to_gzipped_files(tmp_path: Path, write_images: Write) -> None:
    write_images(tmp_path, end=".gz")
    write_images(tmp_path, end="")
    assert {path.suffix for path in find_idx_files(tmp_path).values()} == {""}


@pytest.mark.parametrize("stem", NUM_DIMENSIONS)
def test_incomplete_image_set_in_a_named_folder_is_rejected(
    tmp_path: Path, write_images: Write, stem: str
) -> None:
    write_images(tmp_path / "mnist")
    (tmp_path / "mnist" / list_file_names(stem)[1]).unlink()
    with pytest.raises(DataError, match=f"only 3 of the 4 files of MNIST; missing: {stem}-idx"):
        load_images(MNIST, tmp_path)


def test_incomplete_image_set_in_a_default_folder_is_skipped(write_images: Write) -> None:
    write_images(Path("data/mnist"))
    Path("data/mnist/t10k-labels-idx1-ubyte.gz").unlink()
    write_images(Path("data/MNIST/raw"), num_train=7)
    assert len(load_images(MNIST, None).x) == 7


@pytest.mark.parametrize("stem", NUM_DIMENSIONS)
@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.9, 0.999])
def test_truncated_image_file_is_rejected_with_its_name(
    tmp_path: Path, write_images: Write, stem: str, end: str, share: float
) -> None:
    write_images(tmp_path, end=end)
    name = f"{stem}-idx{NUM_DIMENSIONS[stem]}-ubyte{end}"
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=f"{name}: expected .* got .*Nothing was loaded"):
        load_images(MNIST, tmp_path)


def test_different_numbers_of_images_and_labels_are_rejected(
    tmp_path: Path, write_images: Write
) -> None:
    write_images(tmp_path / "other", num_train=9)
    write_images(tmp_path / "mnist")
    labels = "train-labels-idx1-ubyte.gz"
    (tmp_path / "other" / labels).replace(tmp_path / "mnist" / labels)
    with pytest.raises(DataError, match=r"has 12 images but .* has 9 labels"):
        load_images(MNIST, tmp_path)


def test_label_beyond_the_classes_is_rejected(tmp_path: Path, write_images: Write) -> None:
    write_images(tmp_path, end="")

    def eleven(content: bytearray) -> None:
        content[8 + 3] = 11

    rewrite(tmp_path / "t10k-labels-idx1-ubyte", eleven)
    with pytest.raises(DataError, match="expected labels 0 to 9, got 11 at sample 3"):
        load_images(MNIST, tmp_path)


def test_images_of_another_size_are_rejected(tmp_path: Path, write_images: Write) -> None:
    write_images(tmp_path, end="")

    def wider(content: bytearray) -> None:
        content[8:16] = struct.pack(">2I", 14, 56)

    rewrite(tmp_path / "train-images-idx3-ubyte", wider)
    with pytest.raises(DataError, match="expected images of 28 x 28 pixels, got 14 x 56"):
        load_images(MNIST, tmp_path)


def test_image_set_without_images_is_rejected(tmp_path: Path, write_images: Write) -> None:
    write_images(tmp_path, num_test=0)
    with pytest.raises(DataError, match=r"t10k-images.*: expected images, got none"):
        load_images(MNIST, tmp_path)


def test_missing_image_set_offline_gives_one_message_with_remedies(tmp_path: Path) -> None:
    absent = replace(FASHION_MNIST, known=(tmp_path / "debian",))
    with pytest.raises(DataError) as caught:
        load_images(absent, tmp_path)
    message = str(caught.value)
    for part in (
        "Fashion-MNIST is not on this machine, and THALWEG_OFFLINE forbids a download",
        "apt install dataset-fashion-mnist",
        "--data-dir FOLDER",
        "THALWEG_DATA=FOLDER",
        "train-images-idx3-ubyte.gz",
        "https://",
        f"{tmp_path / 'fashion-mnist'} (--data-dir)",
        f"{tmp_path / 'cache' / 'fashion-mnist'} (the user's cache)",
        f"{tmp_path / 'debian'} (a well-known folder)",
    ):
        assert part in message


@pytest.fixture
def online(
    tmp_path: Path, write_images: Write, file_server: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Any]:
    """Return a local file server and an image set published on it."""
    monkeypatch.setenv("THALWEG_OFFLINE", "0")
    write_images(tmp_path / "published")
    for path in find_idx_files(tmp_path / "published").values():
        file_server.files[path.name] = path.read_bytes()
    files = tuple(
        RemoteFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in file_server.files.items()
    )
    return file_server, replace(MNIST, mirrors=(file_server.address,), files=files)


def test_image_set_download_fills_the_cache_once(tmp_path: Path, online: Any) -> None:
    file_server, published = online
    first = load_images(published, None)
    second = load_images(published, None)
    np.testing.assert_array_equal(first.x, second.x)
    assert sorted(file_server.requests) == sorted(file.name for file in published.files)
    assert len(list((tmp_path / "cache" / "mnist").iterdir())) == 4


def test_interrupted_image_set_download_is_completed(tmp_path: Path, online: Any) -> None:
    file_server, published = online
    name = published.files[3].name
    kept = file_server.files.pop(name)
    with pytest.raises(DataError, match=r"the download failed: .*answered 404"):
        load_images(published, None)
    file_server.files[name] = kept
    load_images(published, None)
    assert [file_server.requests.count(file.name) for file in published.files] == [1, 1, 1, 2]


def test_failed_image_set_download_reports_reason_and_remedies(
    online: Any, closed_address: str
) -> None:
    _, published = online
    with pytest.raises(DataError, match=r"(?s)cannot be reached.*--data-dir.*Looked in") as caught:
        load_images(replace(published, mirrors=(closed_address,)), None)
    assert "MNIST is not on this machine" in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_download_is_not_cached(tmp_path: Path, online: Any, damage: str) -> None:
    file_server, published = online
    name = published.files[0].name
    if damage == "cut":
        file_server.truncated[name] = 100
    else:
        file_server.files[name] = gzip.compress(b"an error page", mtime=0)
    with pytest.raises(DataError, match=f"the download failed: .*{name}"):
        load_images(published, None)
    assert list((tmp_path / "cache" / "mnist").iterdir()) == []
