from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import DataError
from thalweg.data import Cifar10, cifar10
from thalweg.data.cifar import read_batch
from thalweg.data.download import RemoteFile

NAMES = [*cifar10.TRAIN, cifar10.TEST]


def batch(number: int, n: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {
        "batch_label": f"batch {number}",
        "labels": rng.integers(0, 10, n).tolist(),
        "data": rng.integers(0, 256, (n, 3072), dtype=np.uint8),
        "filenames": ["a.png"] * n,
    }


def write(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        content = {**batch(number), **changes} if name == "data_batch_3" else batch(number)
        (folder / name).write_bytes(pickle.dumps(content, 2))
    return folder


def pack(folder: Path, archive: Path, names: list[str] = NAMES) -> None:
    with tarfile.open(archive, "w:gz") as tar:
        for name in names:
            tar.add(folder / name, f"{cifar10.FOLDER}/{name}")


@pytest.mark.parametrize("layout", ["", "cifar10", "cifar-10-batches-py", "CIFAR10"])
def test_official_cifar10_folder_is_found_in_every_layout(tmp_path: Path, layout: str) -> None:
    write(tmp_path / "mine" / layout if layout else tmp_path / "mine")
    data = Cifar10().load(tmp_path / "mine", seed=0)
    assert (data.x.shape, data.x_test.shape) == ((15, 32, 32, 3), (3, 32, 32, 3))
    assert (data.x.dtype, data.y.dtype) == (np.uint8, np.int64)
    assert data.y.tolist() == [label for i in range(5) for label in batch(i)["labels"]]
    assert data.y_test.tolist() == batch(5)["labels"]
    assert data.class_names[3] == "cat"
    assert data.x.flags.writeable
    assert data.x.flags.c_contiguous


def test_cifar10_rows_hold_red_then_green_then_blue(tmp_path: Path) -> None:
    write(tmp_path / "cifar10")
    x = Cifar10().load(tmp_path, seed=0).x
    row = batch(1)["data"][2]
    assert x[3 + 2, 0, 1].tolist() == [row[1], row[1024 + 1], row[2048 + 1]]
    assert x[3 + 2, 31, 0].tolist() == [row[992], row[1024 + 992], row[2048 + 992]]


def test_python_2_pickle_is_read() -> None:
    def text(content: bytes) -> bytes:
        return b"T" + len(content).to_bytes(4, "little") + content

    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
    array += b"(K\x01(K\x01M\x00\x0ct"  # version 1, shape (1, 3072)
    array += b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNN"
    array += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array += b"\x89" + text(bytes(range(256)) * 12) + b"tb"
    content = b"\x80\x02}(" + text(b"data") + array + text(b"labels") + b"](K\x07eu."
    x, y = read_batch(content, "here", "CIFAR-10", {"labels": 10})
    assert y["labels"].tolist() == [7]
    assert x[0, 0, :3, 0].tolist() == [0, 1, 2]


def test_cifar10_archive_is_read_without_unpacking(tmp_path: Path) -> None:
    folder = write(tmp_path / "made")
    mine = tmp_path / "mine"
    mine.mkdir()
    pack(folder, mine / "cifar-10-python.tar.gz", NAMES[::-1])
    data = Cifar10().load(mine, seed=0)
    assert data.y.tolist() == Cifar10().load(folder, seed=0).y.tolist()
    assert [path.name for path in mine.iterdir()] == ["cifar-10-python.tar.gz"]


def test_incomplete_or_damaged_cifar10_archive_is_rejected(tmp_path: Path) -> None:
    folder = write(tmp_path / "made")
    mine = tmp_path / "mine"
    mine.mkdir()
    archive = mine / "cifar-10-python.tar.gz"
    pack(folder, archive, NAMES[1:])
    with pytest.raises(DataError, match=r"lacks .*data_batch_1"):
        Cifar10().load(mine, seed=0)
    pack(folder, archive)
    archive.write_bytes(archive.read_bytes()[:5000])
    with pytest.raises(DataError, match="cannot be unpacked"):
        Cifar10().load(mine, seed=0)


def test_archive_links_are_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    with tarfile.open(mine / "cifar-10-python.tar.gz", "w:gz") as tar:
        for name in NAMES:
            link = tarfile.TarInfo(f"{cifar10.FOLDER}/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
            tar.addfile(link, io.BytesIO())
    with pytest.raises(DataError, match="lacks"):
        Cifar10().load(mine, seed=0)


class Command:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_malicious_cifar10_batch_is_rejected_without_executing_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    write(tmp_path / "cifar10", filenames=Command(f"touch {trace}"))
    with pytest.raises(DataError, match=r"data_batch_3: .*not an official batch.*executed"):
        Cifar10().load(tmp_path, seed=0)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": None}, "expected an array 'data' and a list 'labels'"),
        ({"data": [1, 2]}, "expected an array 'data' and a list 'labels'"),
        ({"data": np.zeros((3, 784), np.uint8)}, r"\(n, 3072\), got \(3, 784\)"),
        ({"data": np.zeros((3, 3072))}, "something else than bytes"),
        ({"labels": [1, 2]}, "3 images but 2 labels"),
        ({"labels": [1, 10, 2]}, "expected labels 0 to 9, got 10 at sample 1"),
        ({"labels": [1, 2, "3"]}, "got '3' at sample 2"),
    ],
)
def test_invalid_cifar10_batches_are_rejected(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    write(tmp_path / "cifar10", **changes)
    with pytest.raises(DataError, match=f"data_batch_3: .*{words}"):
        Cifar10().load(tmp_path, seed=0)


def test_incomplete_cifar10_folder_is_rejected(tmp_path: Path) -> None:
    (write(tmp_path / "cifar10") / "data_batch_4").unlink()
    with pytest.raises(
        DataError, match=r"only 5 of the 6 parts of CIFAR-10; missing: data_batch_4"
    ):
        Cifar10().load(tmp_path, seed=0)


def test_missing_cifar10_offline_gives_one_message_with_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        Cifar10().load(tmp_path, seed=0)
    for part in (
        "CIFAR-10 is not on this machine, and THALWEG_OFFLINE forbids a download",
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        "--data-dir FOLDER or THALWEG_DATA=FOLDER",
        f"{tmp_path / 'cifar10'} (--data-dir)",
        f"{tmp_path / 'cache' / 'cifar10'} (the user's cache)",
    ):
        assert part in str(caught.value)


def test_cifar10_download_fills_the_cache_once(
    tmp_path: Path, file_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(write(tmp_path / "made"), tmp_path / "made.tar.gz")
    content = (tmp_path / "made.tar.gz").read_bytes()
    name = "cifar-10-python.tar.gz"
    file_server.files[name] = content
    remote = RemoteFile(name, len(content), hashlib.sha256(content).hexdigest())
    published = replace(cifar10.CIFAR10, archive=remote, mirrors=(file_server.address,))
    monkeypatch.setattr(cifar10, "CIFAR10", published)
    monkeypatch.setenv("THALWEG_OFFLINE", "0")
    for _ in range(2):
        assert len(Cifar10().load(None, seed=0).x) == 15
    assert file_server.requests == [name]


def test_failed_cifar10_download_reports_the_reason(
    monkeypatch: pytest.MonkeyPatch, closed_address: str
) -> None:
    unreachable = replace(cifar10.CIFAR10, mirrors=(closed_address,))
    monkeypatch.setattr(cifar10, "CIFAR10", unreachable)
    monkeypatch.setenv("THALWEG_OFFLINE", "0")
    with pytest.raises(DataError, match=r"(?s)the download failed.*cannot be reached.*Looked in"):
        Cifar10().load(None, seed=0)
