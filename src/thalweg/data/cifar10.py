"""CIFAR-10: 60,000 colour photographs, 32 x 32, in 10 classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.download import RemoteFile, fetch

TITLE = "CIFAR-10"
FOLDER = "cifar-10-batches-py"
FOLDERS = ("cifar10", f"cifar10/{FOLDER}", FOLDER, "CIFAR10", f"CIFAR10/{FOLDER}")
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = "test_batch"
MIRRORS = ("https://www.cs.toronto.edu/~kriz",)
ARCHIVE = RemoteFile(
    "cifar-10-python.tar.gz",
    170498071,
    "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
)
CLASS_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training pixels, x / 255


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10 (Krizhevsky, 2009) with its own split: 50,000 and 10,000.

    Read from the folder of the official Python batches, or from the archive they come in. They are
    pickles, and read as if a stranger had made them: see `cifar_pickle`.
    """

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the files; the same for every seed."""
        source = find(data_dir) or download(data_dir)
        parts = {name: _read_batch(content, where) for name, content, where in _files(source)}
        train = [parts[name] for name in TRAIN]
        return Dataset(
            name="cifar10",
            x=np.concatenate([x for x, _ in train]),
            y=np.concatenate([y for _, y in train]),
            x_test=parts[TEST][0],
            y_test=parts[TEST][1],
            num_classes=10,
            mean=MEAN,
            std=STD,
            class_names=CLASS_NAMES,
        )

    def locate(self, data_dir: Path | None) -> object:
        """Where the files are, without reading them."""
        return find(data_dir) or download(data_dir)


def find(data_dir: Path | None) -> Path | None:
    """The folder with the batches, or the archive; None: neither is anywhere.

    Of both in one folder the batches are taken, which are quicker to read.
    """
    for place in search.places(FOLDERS, data_dir):
        if (folder := search.folder_with((*TRAIN, TEST), TITLE, [place])) is not None:
            return folder
        if (place.folder / ARCHIVE.name).is_file():
            return place.folder / ARCHIVE.name
    return None


def download(data_dir: Path | None) -> Path:
    """Fetch the archive into the user's cache, or say how else to get it."""
    why = f"{search.OFFLINE_VARIABLE} forbids a download"
    if not search.is_offline():
        try:
            return fetch(ARCHIVE, MIRRORS, search.cache_folder() / FOLDERS[0])
        except DataError as error:
            why = f"the download failed: {error}"
    ways = [
        search.by_hand(f"the folder {FOLDER} or the archive {ARCHIVE.name}"),
        f"let {ARCHIVE.name} be downloaded from {MIRRORS[0]}: connect to the network, "
        f"leave {search.OFFLINE_VARIABLE} unset, run again",
    ]
    raise search.not_found(TITLE, why, ways, search.places(FOLDERS, data_dir))


def _files(source: Path) -> Iterator[tuple[str, bytes, str]]:
    """Name, content and whereabouts of the six batches in a folder or an archive."""
    if source.is_dir():
        for name in (*TRAIN, TEST):
            yield name, (source / name).read_bytes(), str(source / name)
        return
    import tarfile
    import zlib

    found = set()
    try:
        with tarfile.open(source, "r:gz") as archive:  # read in memory, never unpacked
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                if folder == FOLDER and name in (*TRAIN, TEST) and member.isfile():
                    file = archive.extractfile(member)
                    assert file is not None  # a regular file has content
                    found.add(name)
                    yield name, file.read(), f"{source}:{member.name}"
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{source}: expected the archive of {TITLE}, got something that cannot be unpacked "
            f"({error}). Nothing was loaded; delete it and get it again."
        ) from error
    if missing := [name for name in (*TRAIN, TEST) if name not in found]:
        raise DataError(f"{source}: this archive lacks {FOLDER}/ {', '.join(missing)}.")


def _read_batch(content: bytes, where: str) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Images (n, 32, 32, 3) and labels (n,) of one batch."""
    from thalweg.data.cifar_pickle import PickledArray, read_pickle

    batch = read_pickle(content, where)
    data, labels = batch.get("data"), batch.get("labels")
    if not isinstance(data, PickledArray) or not isinstance(labels, list):
        raise DataError(
            f"{where}: expected an array 'data' and a list 'labels', "
            f"got {', '.join(sorted(batch)) or 'nothing'}. This is not a batch of {TITLE}."
        )
    try:
        pixels = data.to_bytes()
    except ValueError as error:
        raise DataError(f"{where}: expected images in 'data', got {error}.") from error
    if pixels.ndim != 2 or pixels.shape[1] != 3072 or len(pixels) == 0:
        raise DataError(f"{where}: expected 'data' of shape (n, 3072), got {pixels.shape}.")
    y = _labels(labels, where)
    if len(y) != len(pixels):
        raise DataError(f"{where}: {len(pixels)} images but {len(y)} labels.")
    # A row is all of red, then green, then blue.
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), y


def _labels(labels: list[Any], where: str) -> Ints:
    for at, label in enumerate(labels):
        if type(label) is not int or not 0 <= label <= 9:
            raise DataError(f"{where}: expected labels 0 to 9, got {label!r} at sample {at}.")
    return np.array(labels, dtype=np.int64)
