"""Image sets published as four IDX files: find, download and read them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.download import RemoteFile, fetch
from thalweg.data.idx import read_idx

NUM_DIMENSIONS = {"train-images": 3, "train-labels": 1, "t10k-images": 3, "t10k-labels": 1}

# SHA-256 of the 60,000 training labels. The files of these sets have the same names, and nothing
# else identifies the set.
TITLE_BY_LABELS_HASH = {
    "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13": "MNIST",
    "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7": "Fashion-MNIST",
}


@dataclass(frozen=True)
class PublishedImages:
    """An image set in four IDX files: names, folders and checksums."""

    name: str
    title: str
    folders: tuple[str, ...]  # possible folder names; the first is ours
    known: tuple[Path, ...]  # paths where a distribution installs it
    package: str | None  # the Debian package
    mirrors: tuple[str, ...]
    files: tuple[RemoteFile, ...]
    side: int  # pixels
    mean: float  # of the training pixels, as x / 255
    std: float
    class_names: tuple[str, ...]


def load_images(published: PublishedImages, data_dir: Path | None) -> Dataset:
    """Load the set from the first folder that has it; download it if no folder has it."""
    files = locate_images(published, data_dir)
    x, y = _read_part(published, files, "train")
    x_test, y_test = _read_part(published, files, "t10k")
    owner = TITLE_BY_LABELS_HASH.get(hashlib.sha256(y.tobytes()).hexdigest(), published.title)
    if owner != published.title:
        raise DataError(
            f"{files['train-labels']}: these are the labels of {owner}, not of {published.title}; "
            f"the two have files of the same names. Keep {published.title} in a folder called "
            f"{published.name!r} inside the one you name with --data-dir or THALWEG_DATA."
        )
    return Dataset(
        name=published.name,
        x=x,
        y=_as_labels(y),
        x_test=x_test,
        y_test=_as_labels(y_test),
        num_classes=len(published.class_names),
        mean=(published.mean,),
        std=(published.std,),
        class_names=published.class_names,
    )


def locate_images(published: PublishedImages, data_dir: Path | None) -> dict[str, Path]:
    """The four files by stem, from the first folder that has them; downloaded if necessary."""
    return find(published, data_dir) or download(published, data_dir)


def find(published: PublishedImages, data_dir: Path | None) -> dict[str, Path] | None:
    """The four files by stem in the first folder that has all of them; None: not found."""
    for candidate in search.list_folders(published.folders, data_dir, published.known):
        files = find_idx_files(candidate.folder)
        missing = [stem for stem in NUM_DIMENSIONS if stem not in files]
        if not missing:
            return files
        if files and candidate.is_chosen:
            raise DataError(
                f"{candidate.folder} ({candidate.origin}) holds only {len(files)} of the 4 files "
                f"of {published.title}; missing: "
                f"{', '.join(list_file_names(stem)[1] for stem in missing)}."
            )
    return None


def find_idx_files(folder: Path) -> dict[str, Path]:
    """The IDX files of a folder by stem, in any spelling."""
    return {
        stem: folder / name
        for stem in NUM_DIMENSIONS
        for name in reversed(list_file_names(stem))  # the preferred spelling is last
        if (folder / name).is_file()
    }


def list_file_names(stem: str) -> tuple[str, ...]:
    """Possible file names of one of the four files; plain before gzipped, which is slower to read.

    >>> list_file_names("t10k-labels")[:2]
    ('t10k-labels-idx1-ubyte', 't10k-labels-idx1-ubyte.gz')
    """
    rank = NUM_DIMENSIONS[stem]
    return tuple(f"{stem}{mark}idx{rank}-ubyte{end}" for mark in "-." for end in ("", ".gz"))


def download(published: PublishedImages, data_dir: Path | None) -> dict[str, Path]:
    """Download the files that the cache lacks, or raise an error with instructions."""
    if search.is_offline():
        raise _not_found_error(published, data_dir, f"{search.OFFLINE_VARIABLE} forbids a download")
    folder = search.cache_folder() / published.name
    try:
        for remote in published.files:
            if not (folder / remote.name).is_file():
                fetch(remote, published.mirrors, folder)
    except DataError as error:
        raise _not_found_error(published, data_dir, f"the download failed: {error}") from error
    return find_idx_files(folder)


def _not_found_error(published: PublishedImages, data_dir: Path | None, why: str) -> DataError:
    names = ", ".join(list_file_names(stem)[1] for stem in NUM_DIMENSIONS)
    ways = [
        search.manual_instructions(f"{names} (gzipped or not)"),
        f"let it be downloaded from {published.mirrors[0]}: connect to the network, "
        f"leave {search.OFFLINE_VARIABLE} unset, run again",
    ]
    if published.package:
        ways.insert(0, f"on Debian and its relatives: apt install {published.package}")
    candidates = search.list_folders(published.folders, data_dir, published.known)
    return search.not_found_error(published.title, why, ways, candidates)


def _read_part(
    published: PublishedImages, files: dict[str, Path], part: str
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Images (n, side, side, 1) and labels (n,) of the training ("train") or test ("t10k") part."""
    images_file, labels_file = files[f"{part}-images"], files[f"{part}-labels"]
    labels = read_idx(labels_file, ndim=1)
    images = read_idx(images_file, ndim=3)
    side, num_classes = published.side, len(published.class_names)
    if images.shape[1:] != (side, side):
        raise DataError(
            f"{images_file}: expected images of {side} x {side} pixels, "
            f"got {images.shape[1]} x {images.shape[2]}."
        )
    if len(images) == 0:
        raise DataError(f"{images_file}: expected images, got none.")
    if len(images) != len(labels):
        raise DataError(
            f"{images_file} has {len(images)} images but {labels_file} has {len(labels)} labels; "
            "expected one label for each image. Are they from the same part?"
        )
    if labels.max() >= num_classes:
        at = int(labels.argmax())
        raise DataError(
            f"{labels_file}: expected labels 0 to {num_classes - 1}, "
            f"got {labels[at]} at sample {at}."
        )
    return images[..., None], labels


def _as_labels(labels: npt.NDArray[np.uint8]) -> Ints:
    return labels.astype(np.int64)
