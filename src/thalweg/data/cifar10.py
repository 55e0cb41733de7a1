"""CIFAR-10: 60,000 colour photographs, 32 x 32, in 10 classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thalweg.data import cifar
from thalweg.data.base import Dataset
from thalweg.data.download import RemoteFile

FOLDER = "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
TEST = "test_batch"
CIFAR10 = cifar.PublishedBatches(
    title="CIFAR-10",
    folder=FOLDER,
    folders=("cifar10", f"cifar10/{FOLDER}", FOLDER, "CIFAR10", f"CIFAR10/{FOLDER}"),
    files=(*TRAIN, TEST),
    archive=RemoteFile(
        "cifar-10-python.tar.gz",
        170498071,
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    mirrors=("https://www.cs.toronto.edu/~kriz",),
)
NUM_LABELS = {"labels": 10}
CLASS_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training pixels, x / 255


@dataclass(frozen=True)
class Cifar10:
    """CIFAR-10 (Krizhevsky, 2009) with its own split: 50,000 and 10,000.

    Read from the folder of the official Python batches or from their archive. The batches are
    pickles and are read without executing them: see `cifar_pickle`.
    """

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the files; the same for every seed."""
        source = cifar.locate(CIFAR10, data_dir)
        parts = {
            name: cifar.read_batch(content, where, CIFAR10.title, NUM_LABELS)
            for name, content, where in cifar.read_files(CIFAR10, source)
        }
        train = [parts[name] for name in TRAIN]
        return Dataset(
            name="cifar10",
            x=np.concatenate([x for x, _ in train]),
            y=np.concatenate([y["labels"] for _, y in train]),
            x_test=parts[TEST][0],
            y_test=parts[TEST][1]["labels"],
            num_classes=10,
            mean=MEAN,
            std=STD,
            class_names=CLASS_NAMES,
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the files without reading them."""
        return cifar.locate(CIFAR10, data_dir)
