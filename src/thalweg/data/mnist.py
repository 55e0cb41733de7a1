"""MNIST: 70,000 grey-scale handwritten digits, 28 x 28."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thalweg.data.base import Dataset
from thalweg.data.download import RemoteFile
from thalweg.data.idx_images import PublishedImages, load_images, locate_images

MNIST = PublishedImages(
    name="mnist",
    title="MNIST",
    folders=("mnist", "MNIST/raw"),
    known=(),
    package=None,
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist",),
    files=(
        RemoteFile(
            "train-images-idx3-ubyte.gz",
            9912422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        RemoteFile(
            "train-labels-idx1-ubyte.gz",
            28881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        RemoteFile(
            "t10k-images-idx3-ubyte.gz",
            1648877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        RemoteFile(
            "t10k-labels-idx1-ubyte.gz",
            4542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    side=28,
    mean=0.1307,
    std=0.3081,
    class_names=tuple("0123456789"),
)


@dataclass(frozen=True)
class Mnist:
    """MNIST (LeCun, Bottou, Bengio and Haffner, 1998) with its own split: 60,000 and 10,000."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the files; the same for every seed."""
        return load_images(MNIST, data_dir)

    def locate(self, data_dir: Path | None) -> object:
        """Locate the files without reading them."""
        return locate_images(MNIST, data_dir)
