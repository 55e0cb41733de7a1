"""scikit-learn's digits: 1,797 handwritten digits of 8 x 8 pixels that need no download."""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thalweg.core.types import Floats
from thalweg.data.base import Dataset
from thalweg.data.split import stratified_split

TEST_FRACTION = 0.2
MEAN, STD = 0.3057, 0.3759  # of the training pixels, as x / 255


@dataclass(frozen=True)
class Digits:
    """The 8 x 8 digits of Alpaydin and Kaynak (1998), as included in scikit-learn.

    Grey values 0 .. 16 are scaled to 0 .. 255. The split (four fifths of every class for training)
    is fixed.

    >>> data = Digits().load(None, seed=7)
    >>> data.x.shape, data.x_test.shape
    ((1438, 8, 8, 1), (359, 8, 8, 1))
    """

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the digits from the installed package; the same for every seed."""
        table = _load_from_sklearn() if (file := _find_file()) is None else _read(file)
        x = np.rint(table[:, :64] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
        y = table[:, 64].astype(np.int64)
        train, test = stratified_split(y, TEST_FRACTION)
        return Dataset(
            name="digits",
            x=x[train],
            y=y[train],
            x_test=x[test],
            y_test=y[test],
            num_classes=10,
            mean=(MEAN,),
            std=(STD,),
            class_names=tuple("0123456789"),
        )


def _find_file() -> Path | None:
    """The file inside scikit-learn.

    Importing scikit-learn takes a second, reading its file milliseconds.
    """
    spec = importlib.util.find_spec("sklearn")  # finds the package without running it
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).with_name("datasets") / "data" / "digits.csv.gz"
    return file if file.is_file() else None


def _read(file: Path) -> Floats:
    """(n, 65): grey values and the digit."""
    with gzip.open(file, "rt") as lines:
        return np.loadtxt(lines, delimiter=",")


def _load_from_sklearn() -> Floats:
    """The same through scikit-learn's API, in case the file has moved."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return np.column_stack([images, labels])
