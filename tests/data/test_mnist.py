from __future__ import annotations

from pathlib import Path

import numpy as np

from thalweg.data import Mnist
from thalweg.data.mnist import MNIST


def test_mnist_files_in_the_torchvision_layout_are_read(tmp_path: Path, write_images) -> None:
    written = write_images(tmp_path / "MNIST" / "raw")
    data = Mnist().load(tmp_path, seed=0)
    np.testing.assert_array_equal(data.x[..., 0], written["train-images"])
    assert (data.name, data.num_classes) == ("mnist", 10)
    assert (data.mean, data.std) == ((0.1307,), (0.3081,))
    assert data.class_names[3] == "3"


def test_mnist_checksums_and_mirrors_are_well_formed() -> None:
    assert len(MNIST.files) == 4
    assert all(len(bytes.fromhex(file.sha256)) == 32 for file in MNIST.files)
    assert all(mirror.startswith("https://") for mirror in MNIST.mirrors)
