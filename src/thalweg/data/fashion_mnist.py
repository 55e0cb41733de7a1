"""Fashion-MNIST: 70,000 grey-scale images of clothes, 28 x 28, in 10 classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thalweg.data.base import Dataset
from thalweg.data.download import RemoteFile
from thalweg.data.idx_images import PublishedImages, load_images, locate_images

FASHION_MNIST = PublishedImages(
    name="fashion-mnist",
    title="Fashion-MNIST",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    known=(Path("/usr/share/datasets/fashion-mnist"),),
    package="dataset-fashion-mnist",
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
    # Checksums of the authors' files. Debian's files have the same content with another gzip
    # header.
    files=(
        RemoteFile(
            "train-images-idx3-ubyte.gz",
            26421880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        RemoteFile(
            "train-labels-idx1-ubyte.gz",
            29515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        RemoteFile(
            "t10k-images-idx3-ubyte.gz",
            4422102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        RemoteFile(
            "t10k-labels-idx1-ubyte.gz",
            5148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    side=28,
    mean=0.2860,
    std=0.3530,
    class_names=(
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
)


@dataclass(frozen=True)
class FashionMnist:
    """Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017) with its own split: 60,000 and 10,000."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the files; the same for every seed."""
        return load_images(FASHION_MNIST, data_dir)

    def locate(self, data_dir: Path | None) -> object:
        """Locate the files without reading them."""
        return locate_images(FASHION_MNIST, data_dir)
