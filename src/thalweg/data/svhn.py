"""SVHN: cropped digits of house numbers, 32 x 32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.base import Dataset

TITLE = "SVHN"
FOLDERS = ("svhn", "SVHN")
TRAIN, TEST, EXTRA = "train_32x32.mat", "test_32x32.mat", "extra_32x32.mat"
HOME = "http://ufldl.stanford.edu/housenumbers"
MEAN, STD = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)  # of the training pixels, x / 255

Images = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Svhn:
    """Street View House Numbers (Netzer et al., 2011), cropped digits: 73,257 and 26,032.

    Read from the published MATLAB files, in which the digit 0 has the label 10; here it has the
    label 0.
    """

    include_extra: bool = False
    """Train on the 531,131 easier images of ``extra_32x32.mat`` as well (1.6 GB)."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the files; the same for every seed."""
        folder = _find(data_dir, self._files)
        *train, test = (_read(folder / name) for name in self._files)
        return Dataset(
            name="svhn",
            x=np.concatenate([x for x, _ in train]) if self.include_extra else train[0][0],
            y=np.concatenate([y for _, y in train]),
            x_test=test[0],
            y_test=test[1],
            num_classes=10,
            mean=MEAN,
            std=STD,
            class_names=tuple("0123456789"),
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the files without reading them."""
        return _find(data_dir, self._files)

    @property
    def _files(self) -> tuple[str, ...]:
        return (TRAIN, EXTRA, TEST) if self.include_extra else (TRAIN, TEST)


def _find(data_dir: Path | None, files: tuple[str, ...]) -> Path:
    candidates = search.list_folders(FOLDERS, data_dir)
    folder = search.find_folder(files, TITLE, candidates)
    if folder is None:
        ways = [f"get {' and '.join(files)} from {HOME}", search.manual_instructions("these files")]
        raise search.not_found_error(TITLE, "is not downloaded automatically", ways, candidates)
    return folder


def _read(file: Path) -> tuple[Images, Ints]:
    """Images (n, 32, 32, 3) and digits (n,)."""
    arrays = _read_mat(file)
    x, y = arrays["X"], arrays["y"]
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.dtype != np.uint8:
        raise DataError(
            f"{file}: expected X to be uint8 of shape (32, 32, 3, n), "
            f"got {x.dtype} of shape {x.shape}."
        )
    num_images = x.shape[3]
    if num_images == 0:
        raise DataError(f"{file}: expected images, got none.")
    if y.shape != (num_images, 1) or y.dtype.kind not in "iuf":
        raise DataError(
            f"{file}: expected y to be numbers of shape ({num_images}, 1), one for each image, "
            f"got {y.dtype} of shape {y.shape}."
        )
    labels = y[:, 0]
    outside = ~np.isin(labels, range(1, 11))
    if outside.any():
        at = int(outside.argmax())
        raise DataError(
            f"{file}: expected labels 1 to 10, where 10 means the digit 0, "
            f"got {labels[at]} at sample {at}."
        )
    digits = labels.astype(np.int64) % 10
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), digits


def _read_mat(file: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays X and y of a MATLAB file; other content is ignored."""
    from scipy.io import loadmat

    try:
        found = loadmat(file, variable_names=["X", "y"])
    except Exception as error:  # damaged files raise many kinds of errors, from zlib's to KeyError
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{file} is not a readable MATLAB file of version 5 ({reason}). Nothing was loaded; "
            f"download it again from {HOME}."
        ) from error
    if missing := [name for name in ("X", "y") if not isinstance(found.get(name), np.ndarray)]:
        raise DataError(
            f"{file}: expected the arrays X and y, but {' and '.join(missing)} is missing."
        )
    return {"X": found["X"], "y": found["y"]}
