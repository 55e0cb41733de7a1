"""CINIC-10: 270,000 colour photographs, 32 x 32, in the 10 classes of CIFAR-10."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.cifar10 import CLASS_NAMES

TITLE = "CINIC-10"
FOLDERS = ("cinic10", "CINIC-10", "cinic-10", "CINIC10")
HOME = "https://datashare.ed.ac.uk/handle/10283/3192"
MEAN, STD = (0.4789, 0.4723, 0.4305), (0.2421, 0.2383, 0.2587)  # as its authors publish them

Images = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Cinic10:
    """CINIC-10 (Darlow, Crowley, Antoniou and Storkey, 2018): 90,000 to train on, 90,000 to test on.

    Read from folders ``train/CLASS/*.png``, ``valid/...`` and ``test/...``. What was decoded is kept
    in the user's cache as one array per part, so that only the first time is slow.
    """

    include_valid: bool = False
    """Train on the 90,000 images of the validation part too."""

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
        """Where the folders are, without reading the images."""
        return _find(data_dir, self._parts)

    @property
    def _parts(self) -> tuple[str, ...]:
        return ("train", "valid", "test") if self.include_valid else ("train", "test")


def _find(data_dir: Path | None, parts: tuple[str, ...]) -> Path:
    places = search.places(FOLDERS, data_dir)
    wanted = [f"{part}/{name}" for part in parts for name in CLASS_NAMES]
    folder = search.folder_with(wanted, TITLE, places)
    if folder is None:
        ways = [f"get CINIC-10.tar.gz from {HOME} and unpack it", search.by_hand("train and test")]
        raise search.not_found(TITLE, "is not downloaded by itself", ways, places)
    return folder


def _read_part(folder: Path) -> tuple[Images, Ints]:
    """Images (n, 32, 32, 3) and labels (n,) of one part, class by class, by file name."""
    files, counts, key = _listing(folder)
    y = np.repeat(np.arange(10), counts)
    cached = search.cache_folder() / FOLDERS[0] / f"{folder.name}-{key}.npy"
    x = _from_cache(cached, len(files))
    if x is None:
        x = _decoded(files, folder)
        _to_cache(cached, x)
    return x, y


def _listing(folder: Path) -> tuple[list[str], list[int], str]:
    """The files of a part, how many each class has, and a key that changes when a file does."""
    digest, files, counts = hashlib.sha256(), [], []
    for name in CLASS_NAMES:
        with os.scandir(folder / name) as entries:
            mine = sorted((e.name, e.path, e.stat()) for e in entries if e.name.endswith(".png"))
        if not mine:
            raise DataError(f"{folder / name}: expected images (*.png), got none.")
        for file, _, stat in mine:
            digest.update(f"{name}/{file} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        files += [path for _, path, _ in mine]
        counts.append(len(mine))
    return files, counts, digest.hexdigest()[:16]


def _decoded(files: list[str], folder: Path) -> Images:
    from PIL import Image, UnidentifiedImageError
    from rich.console import Console

    if len(files) > 1000:
        message = f"decoding {len(files):,} images of {folder}, once"
        Console(stderr=True).print(message, soft_wrap=True, highlight=False)
    x = np.empty((len(files), 32, 32, 3), dtype=np.uint8)
    for i, file in enumerate(files):
        try:
            with Image.open(file, formats=["PNG"]) as image:
                if image.size != (32, 32):  # before anything is decoded
                    raise ValueError(f"{image.size[0]} x {image.size[1]} pixels")
                x[i] = np.asarray(image.convert("RGB"))
        except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise DataError(
                f"{file}: expected a PNG image of 32 x 32 pixels, got {error}. Nothing was loaded."
            ) from error
    return x


def _from_cache(file: Path, num_images: int) -> Images | None:
    """What was decoded before, if it is there and whole."""
    try:
        x = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    is_whole = x.shape == (num_images, 32, 32, 3) and x.dtype == np.uint8
    return x if is_whole else None


def _to_cache(file: Path, x: Images) -> None:
    """Keep it, whole or not at all; a cache that cannot be written only costs time."""
    part = file.with_name(f".{file.stem}.{os.getpid()}.part.npy")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(part, x)
        os.replace(part, file)
    except OSError:
        with suppress(OSError):
            part.unlink()
