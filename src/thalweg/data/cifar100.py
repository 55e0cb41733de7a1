"""CIFAR-100: 60,000 colour photographs, 32 x 32, in 100 classes and 20 superclasses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thalweg.core.errors import DataError
from thalweg.data import cifar
from thalweg.data.base import Dataset
from thalweg.data.download import RemoteFile

FOLDER = "cifar-100-python"
TRAIN, TEST, META = "train", "test", "meta"
CIFAR100 = cifar.PublishedBatches(
    title="CIFAR-100",
    folder=FOLDER,
    folders=("cifar100", f"cifar100/{FOLDER}", FOLDER, "CIFAR100", f"CIFAR100/{FOLDER}"),
    files=(TRAIN, TEST, META),
    archive=RemoteFile(
        "cifar-100-python.tar.gz",
        169001437,
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
    mirrors=("https://www.cs.toronto.edu/~kriz",),
)
NUM_LABELS = {"fine_labels": 100, "coarse_labels": 20}
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)  # of the training pixels, x / 255


@dataclass(frozen=True)
class Cifar100:
    """CIFAR-100 (Krizhevsky, 2009) with its own split: 50,000 and 10,000.

    The labels are the 100 fine ones; `Dataset.coarse` has the 20 superclasses. Read like CIFAR-10,
    from the folder ``cifar-100-python`` or its archive. Tested only with generated files of the
    published layout.
    """

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read the files; the same for every seed."""
        source = cifar.locate(CIFAR100, data_dir)
        files = {
            name: (content, where) for name, content, where in cifar.read_files(CIFAR100, source)
        }
        x, labels = cifar.read_batch(*files[TRAIN], CIFAR100.title, NUM_LABELS)
        x_test, labels_test = cifar.read_batch(*files[TEST], CIFAR100.title, NUM_LABELS)
        return Dataset(
            name="cifar100",
            x=x,
            y=labels["fine_labels"],
            x_test=x_test,
            y_test=labels_test["fine_labels"],
            num_classes=100,
            mean=MEAN,
            std=STD,
            class_names=_class_names(*files[META]),
            coarse=labels["coarse_labels"],
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the files without reading them."""
        return cifar.locate(CIFAR100, data_dir)


def _class_names(content: bytes, where: str) -> tuple[str, ...]:
    from thalweg.data.cifar_pickle import as_text, read_pickle

    names = read_pickle(content, where).get("fine_label_names")
    if not (isinstance(names, list) and len(names) == 100):
        got = f"{len(names)}" if isinstance(names, list) else "none"
        raise DataError(f"{where}: expected a list 'fine_label_names' of 100 names, got {got}.")
    return tuple(as_text(name) for name in names)
