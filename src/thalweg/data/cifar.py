"""Find and read pickled batches of CIFAR-10 and CIFAR-100 in a folder or an archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.download import RemoteFile, fetch


@dataclass(frozen=True)
class PublishedBatches:
    """An image set in the pickled files of its authors: names, folders and checksums."""

    title: str
    folder: str  # inside the archive
    folders: tuple[str, ...]  # possible folder names; the first is ours
    files: tuple[str, ...]  # all are required
    archive: RemoteFile
    mirrors: tuple[str, ...]


def locate(published: PublishedBatches, data_dir: Path | None) -> Path:
    """Folder with the files, or the archive; downloaded if neither is found."""
    return find(published, data_dir) or download(published, data_dir)


def find(published: PublishedBatches, data_dir: Path | None) -> Path | None:
    """Folder with the files, or the archive; None: not found.

    If both are in one folder, the files are used because they are faster to read.
    """
    for candidate in search.list_folders(published.folders, data_dir):
        # A folder called "train" belongs to another data set.
        if not any((candidate.folder / name).is_dir() for name in published.files):
            folder = search.find_folder(published.files, published.title, [candidate])
            if folder is not None:
                return folder
        if (candidate.folder / published.archive.name).is_file():
            return candidate.folder / published.archive.name
    return None


def download(published: PublishedBatches, data_dir: Path | None) -> Path:
    """Download the archive into the user's cache, or raise an error with instructions."""
    archive, mirrors = published.archive, published.mirrors
    why = f"{search.OFFLINE_VARIABLE} forbids a download"
    if not search.is_offline():
        try:
            return fetch(archive, mirrors, search.cache_folder() / published.folders[0])
        except DataError as error:
            why = f"the download failed: {error}"
    ways = [
        search.manual_instructions(f"the folder {published.folder} or the archive {archive.name}"),
        f"let {archive.name} be downloaded from {mirrors[0]}: connect to the network, "
        f"leave {search.OFFLINE_VARIABLE} unset, run again",
    ]
    candidates = search.list_folders(published.folders, data_dir)
    raise search.not_found_error(published.title, why, ways, candidates)


def read_files(published: PublishedBatches, source: Path) -> Iterator[tuple[str, bytes, str]]:
    """Name, content and location of all files in a folder or an archive."""
    if source.is_dir():
        for name in published.files:
            yield name, (source / name).read_bytes(), str(source / name)
        return
    import tarfile
    import zlib

    found = set()
    try:
        with tarfile.open(source, "r:gz") as archive:  # read in memory, never unpacked
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                if folder == published.folder and name in published.files and member.isfile():
                    file = archive.extractfile(member)
                    assert file is not None  # a regular file has content
                    found.add(name)
                    yield name, file.read(), f"{source}:{member.name}"
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{source}: expected the archive of {published.title}, got a file that cannot be "
            f"unpacked ({error}). Nothing was loaded; delete it and download it again."
        ) from error
    if missing := [name for name in published.files if name not in found]:
        raise DataError(f"{source}: this archive lacks {published.folder}/ {', '.join(missing)}.")


def read_batch(
    content: bytes, where: str, title: str, num_labels: Mapping[str, int]
) -> tuple[npt.NDArray[np.uint8], dict[str, Ints]]:
    """Images (n, 32, 32, 3) of one batch, and its labels (n,) by the names in `num_labels`.

    `num_labels` gives the number of different labels of each kind.
    """
    from thalweg.data.cifar_pickle import PickledArray, read_pickle

    batch = read_pickle(content, where)
    data = batch.get("data")
    lists = {kind: batch.get(kind) for kind in num_labels}
    if not isinstance(data, PickledArray) or not all(isinstance(y, list) for y in lists.values()):
        wanted = " and ".join(["an array 'data'", *(f"a list {kind!r}" for kind in num_labels)])
        raise DataError(
            f"{where}: expected {wanted}, "
            f"got {', '.join(sorted(batch)) or 'nothing'}. This is not a batch of {title}."
        )
    try:
        pixels = data.to_bytes()
    except ValueError as error:
        raise DataError(f"{where}: expected images in 'data', got {error}.") from error
    if pixels.ndim != 2 or pixels.shape[1] != 3072 or len(pixels) == 0:
        raise DataError(f"{where}: expected 'data' of shape (n, 3072), got {pixels.shape}.")
    labels = {
        kind: _labels(lists[kind], kind, count, len(pixels), where)
        for kind, count in num_labels.items()
    }
    # A row contains all red, then all green, then all blue values.
    return np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _labels(labels: Any, kind: str, num_labels: int, num_images: int, where: str) -> Ints:
    for at, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < num_labels:
            raise DataError(
                f"{where}: expected {kind} 0 to {num_labels - 1}, got {label!r} at sample {at}."
            )
    if len(labels) != num_images:
        raise DataError(f"{where}: {num_images} images but {len(labels)} {kind}.")
    return np.array(labels, dtype=np.int64)
