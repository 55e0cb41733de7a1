"""Tests of CIFAR-100 with generated files in the official layout."""

from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import DataError
from thalweg.data import Cifar100, cifar100
from thalweg.data.download import RemoteFile

NAMES = list(cifar100.CIFAR100.files)
FINE = [f"thing {i}" for i in range(100)]


def part(number: int, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    fine = rng.integers(0, 100, n)
    return {
        "batch_label": "made up",
        "fine_labels": fine.tolist(),
        "coarse_labels": (fine // 5).tolist(),
        "data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
        "filenames": ["a.png"] * n,
    }


def write(folder: Path, name: str = "train", **changes: Any) -> Path:
    folder.mkdir(parents=True)
    contents: dict[str, dict[str, Any]] = {
        "train": part(0, 7),
        "test": part(1, 3),
        "meta": {"fine_label_names": FINE, "coarse_label_names": ["family"] * 20},
    }
    contents[name] |= changes
    for file, content in contents.items():
        (folder / file).write_bytes(pickle.dumps(content, 2))
    return folder


def pack(folder: Path, archive: Path) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        for name in NAMES:
            tar.add(folder / name, f"cifar-100-python/{name}")


@pytest.mark.parametrize("layout", ["", "cifar100", "cifar-100-python", "CIFAR100"])
def test_official_cifar100_folder_is_found_in_every_layout(tmp_path: Path, layout: str) -> None:
    write(tmp_path / "mine" / layout if layout else tmp_path / "mine")
    data = Cifar100().load(tmp_path / "mine", seed=0)
    assert (data.x.shape, data.x_test.shape) == ((7, 32, 32, 3), (3, 32, 32, 3))
    assert data.x.dtype == np.uint8
    assert data.y.tolist() == part(0, 7)["fine_labels"]
    assert data.y_test.tolist() == part(1, 3)["fine_labels"]
    assert data.coarse is not None
    assert data.coarse.tolist() == [label // 5 for label in data.y]
    assert data.num_classes == 100
    assert data.class_names[42] == "thing 42"


def test_cifar100_archive_is_read_without_unpacking(tmp_path: Path) -> None:
    folder = write(tmp_path / "made")
    mine = tmp_path / "mine"
    mine.mkdir()
    pack(folder, mine / "cifar-100-python.tar.gz")
    one, other = Cifar100().load(mine, seed=0), Cifar100().load(folder, seed=1)
    np.testing.assert_array_equal(one.x, other.x)
    assert one.class_names == other.class_names
    assert [path.name for path in mine.iterdir()] == ["cifar-100-python.tar.gz"]


class Command:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_malicious_cifar100_file_is_rejected_without_executing_code(
    tmp_path: Path, name: str
) -> None:
    trace = tmp_path / "trace"
    write(tmp_path / "cifar100", name, more=Command(f"touch {trace}"))
    with pytest.raises(DataError, match=rf"{name}: .*not an official batch.*executed"):
        Cifar100().load(tmp_path, seed=0)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("train", {"coarse_labels": None}, "a list 'fine_labels' and a list 'coarse_labels', got"),
        ("train", {"fine_labels": [1, 100]}, "fine_labels 0 to 99, got 100 at sample 1"),
        ("test", {"coarse_labels": [1, 20, 3]}, "coarse_labels 0 to 19, got 20 at sample 1"),
        ("test", {"coarse_labels": [1, 2]}, "3 images but 2 coarse_labels"),
        ("meta", {"fine_label_names": ["one"]}, "of 100 names, got 1"),
        ("meta", {"fine_label_names": None}, "of 100 names, got none"),
    ],
)
def test_invalid_cifar100_content_is_rejected(
    tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    write(tmp_path / "cifar100", name, **changes)
    with pytest.raises(DataError, match=f"{name}: .*{words}"):
        Cifar100().load(tmp_path, seed=0)


def test_incomplete_cifar100_folder_is_rejected(tmp_path: Path) -> None:
    (write(tmp_path / "cifar100") / "meta").unlink()
    with pytest.raises(DataError, match=r"only 2 of the 3 parts of CIFAR-100; missing: meta"):
        Cifar100().load(tmp_path, seed=0)


def test_unrelated_folders_are_not_taken_for_cifar100(tmp_path: Path) -> None:
    folder = write(tmp_path / "made")
    mine = tmp_path / "mine"
    for name in ("train", "test"):
        (mine / name).mkdir(parents=True)
    pack(folder, mine / "cifar-100-python.tar.gz")
    assert len(Cifar100().load(mine, seed=0).x) == 7


def test_missing_cifar100_offline_gives_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Cifar100().load(tmp_path, seed=0)
    for words in (
        "CIFAR-100 is not on this machine, and THALWEG_OFFLINE forbids a download",
        "the folder cifar-100-python or the archive cifar-100-python.tar.gz",
        f"{tmp_path / 'cifar100'} (--data-dir)",
    ):
        assert words in str(caught.value)


def test_cifar100_download_fills_the_cache(
    tmp_path: Path, file_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(write(tmp_path / "made"), tmp_path / "made.tar.gz")
    content = (tmp_path / "made.tar.gz").read_bytes()
    remote = RemoteFile(
        "cifar-100-python.tar.gz", len(content), hashlib.sha256(content).hexdigest()
    )
    file_server.files[remote.name] = content
    published = replace(cifar100.CIFAR100, archive=remote, mirrors=(file_server.address,))
    monkeypatch.setattr(cifar100, "CIFAR100", published)
    monkeypatch.setenv("THALWEG_OFFLINE", "0")
    for _ in range(2):
        assert len(Cifar100().load(None, seed=0).x) == 7
    assert file_server.requests == [remote.name]
