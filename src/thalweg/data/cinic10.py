"""CINIC-10: 270,000 colour photographs, 32 x 32, in the 10 classes of CIFAR-10."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.cifar10 import CLASS_NAMES
from thalweg.data.image_files import ImageFormat, Images, list_images, read_images

TITLE = "CINIC-10"
FOLDERS = ("cinic10", "CINIC-10", "cinic-10", "CINIC10")
HOME = "https://datashare.ed.ac.uk/handle/10283/3192"
MEAN, STD = (0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587)  # as published by the authors
IMAGE_FORMAT = ImageFormat(FOLDERS[0], "PNG", ".png", side=32)


@dataclass(frozen=True)
class Cinic10:
    """CINIC-10 (Darlow et al., 2018): 90,000 training and 90,000 test images.

    Read from folders ``train/CLASS/*.png``, ``valid/...`` and ``test/...``. Decoded images are
    cached as one array per part, so only the first load is slow.
    """

    include_valid: bool = False
    """Train on the 90,000 images of the validation part as well."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the images; the same for every seed."""
        parts = self._parts
        folder = _find(data_dir, parts)
        read = [_read_part(folder / part) for part in parts]
        return Dataset(
            name="cinic10",
            x=np.concatenate([x for x, _ in read[:-1]]) if self.include_valid else read[0][0],
            y=np.concatenate([y for _, y in read[:-1]]),
            x_test=read[-1][0],
            y_test=read[-1][1],
            num_classes=10,
            mean=MEAN,
            std=STD,
            class_names=CLASS_NAMES,
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the folders without reading the images."""
        return _find(data_dir, self._parts)

    @property
    def _parts(self) -> tuple[str, ...]:
        return ("train", "valid", "test") if self.include_valid else ("train", "test")


def _find(data_dir: Path | None, parts: tuple[str, ...]) -> Path:
    candidates = search.list_folders(FOLDERS, data_dir)
    wanted = [f"{part}/{name}" for part in parts for name in CLASS_NAMES]
    folder = search.find_folder(wanted, TITLE, candidates)
    if folder is None:
        ways = [
            f"get CINIC-10.tar.gz from {HOME} and unpack it",
            search.manual_instructions("train and test"),
        ]
        raise search.not_found_error(TITLE, "is not downloaded automatically", ways, candidates)
    return folder


def _read_part(folder: Path) -> tuple[Images, Ints]:
    """Images (n, 32, 32, 3) and labels (n,) of one part, class by class, by file name."""
    classes = [list_images(folder / name, IMAGE_FORMAT) for name in CLASS_NAMES]
    x = read_images([file for files in classes for file in files], folder, IMAGE_FORMAT)
    return x, np.repeat(np.arange(10), [len(files) for files in classes])
