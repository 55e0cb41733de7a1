"""scikit-learn's digits: 1,797 handwritten digits of 8 x 8 pixels that need no download."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thalweg.data.base import Dataset
from thalweg.data.split import stratified_split

TEST_FRACTION = 0.2
MEAN, STD = 0.3057, 0.3759  # of the training pixels, as x / 255


@dataclass(frozen=True)
class Digits:
    """The 8 x 8 digits of Alpaydin and Kaynak (1998), as scikit-learn ships them.

    Their grey values 0 .. 16 become 0 .. 255, so that they are images like any other. The split,
    four fifths of every class for training, is fixed.

    >>> data = Digits().load(None, seed=7)
    >>> data.x.shape, data.x_test.shape
    ((1438, 8, 8, 1), (359, 8, 8, 1))
    """

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read them from the installed package; the same for every seed."""
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)  # (n, 64) float, (n,)
        x = np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
        y = labels.astype(np.int64)
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
