"""MNIST by writer: every writer is a client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.idx_images import load_images, locate_images
from thalweg.data.mnist import MNIST
from thalweg.data.npz import Array, read_npz
from thalweg.data.split import split_each_client

FILE = "mnist_writers.npz"


@dataclass(frozen=True)
class MnistWriters:
    """All 70,000 images of MNIST, grouped by NIST writer, with a test part per writer.

    Writers are natural clients. This data set replaces FEMNIST, which also has letters and about
    3,500 writers. MNIST's own split is by writer, so it cannot measure how well a model serves a
    writer in training; here a fraction of every writer's rows is held out, the same for every seed,
    and at least one row remains for training.

    Needs, besides MNIST, ``mnist_writers.npz`` with integers `train` (60,000) and `test` (10,000):
    the writer of each image, as in QMNIST's labels (Yadav and Bottou, 2019). Clients are numbered
    by writer.
    """

    min_samples: int = 20
    """Writers with fewer images are dropped."""
    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_ranges(self, min_samples="[1, inf)", test_fraction="(0, 1)")

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the files; the same for every seed."""
        file = find_writers(data_dir)
        images = load_images(MNIST, data_dir)
        writers = _read_writers(file, len(images.y), len(images.y_test))  # (70000,)
        kept, group, names = select_large_groups(writers, self.min_samples)
        if not names:
            largest = np.unique(writers, return_counts=True)[1].max()
            raise DataError(
                f"{file}: no writer has {self.min_samples} images, the largest has {largest}; "
                "use a smaller min_samples."
            )
        x = np.concatenate([images.x, images.x_test])
        y = np.concatenate([images.y, images.y_test])
        train, test = split_each_client(group, self.test_fraction, str(file))
        return replace(
            images,
            name="mnist-writers",
            x=x[kept[train]],
            y=y[kept[train]],
            x_test=x[kept[test]],
            y_test=y[kept[test]],
            client=group[train],
            client_test=group[test],
            client_names=names,
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the files without reading them."""
        return locate_images(MNIST, data_dir), find_writers(data_dir)


def select_large_groups(members: Ints, at_least: int) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Rows of groups with enough rows, their new group numbers from 0, and the old group names.

    >>> kept, group, names = select_large_groups(np.array([7, 3, 7, 5, 3]), at_least=2)
    >>> kept.tolist(), group.tolist(), names
    ([0, 1, 2, 4], [1, 0, 1, 0], ('3', '7'))
    """
    names, codes, sizes = np.unique(members, return_inverse=True, return_counts=True)
    is_large = sizes >= at_least
    kept = np.flatnonzero(is_large[codes])
    group = (np.cumsum(is_large) - 1)[codes[kept]]
    return kept, group, tuple(str(name) for name in names[is_large])


def find_writers(data_dir: Path | None) -> Path:
    """The file of writers, next to the images or in their parent folder."""
    images = locate_images(MNIST, data_dir)["train-images"].parent
    folders = [images]
    for name in MNIST.folders:
        if images.parts[-len(Path(name).parts) :] == Path(name).parts:
            folders.append(images.parents[len(Path(name).parts) - 1])
    for folder in folders:
        if (folder / FILE).is_file():
            return folder / FILE
    ways = [
        f"write {FILE} with numpy.savez: train and test, the writer of each image of MNIST, "
        "such as the third column of QMNIST's labels",
        f"put it in {' or '.join(str(folder) for folder in folders)}",
    ]
    candidates = [
        search.SearchFolder(folder, "beside the images of MNIST", True) for folder in folders
    ]
    raise search.not_found_error(FILE, "is not available for download", ways, candidates)


def _read_writers(file: Path, num_train: int, num_test: int) -> Ints:
    """The writer of every image; the training part comes first."""
    arrays = read_npz(file, required=("train", "test"))
    for name, n in (("train", num_train), ("test", num_test)):
        _check(arrays[name], name, n, file)
    return np.concatenate([arrays["train"], arrays["test"]]).astype(np.int64)


def _check(writers: Array, name: str, n: int, file: Path) -> None:
    if writers.shape != (n,) or writers.dtype.kind not in "iu":
        raise DataError(
            f"{file}: expected {name} to be whole numbers of shape ({n},), one writer for each "
            f"image, got {writers.dtype} of shape {writers.shape}."
        )
