"""The source of a data set that was passed from Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from thalweg.core.errors import DataError
from thalweg.core.registry import plain_text
from thalweg.data.base import Dataset
from thalweg.data.mapped import checksum_array


@dataclass(frozen=True)
class InMemory:
    """A `Dataset` object that was passed to `thalweg.run` or `thalweg.compare`.

    A plan stores its name, its size and a checksum of its values, but not the values.
    """

    depends_on_seed: ClassVar[bool] = False

    name: str = plain_text(default="")
    rows: int = 0
    """Number of training rows."""
    checksum: int = field(default=0, metadata={"any_number": True})
    dataset: Dataset | None = field(
        default=None, repr=False, compare=False, metadata={"in_plan": False}
    )
    """The object itself."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Return the object; the same for every seed."""
        if self.dataset is None:
            raise DataError(
                f"the data {self.name} ({self.rows} rows) were passed as an object from Python, so "
                "they cannot be loaded here. Pass the same data again (thalweg.run(RECIPE, DATA, "
                "out=FOLDER, resume=True)), or write them to a file and use its path."
            )
        return self.dataset


def make_source(dataset: Dataset) -> InMemory:
    """Return the source of a data set."""
    return InMemory(dataset.name, len(dataset.y), compute_checksum(dataset), dataset)


def compute_checksum(dataset: Dataset, start: int = 0) -> int:
    """Return a checksum of the samples, targets, clients and times of a data set.

    It continues another checksum (`start`). Memory-mapped samples are not read as a whole.
    """
    training = (dataset.x, dataset.y, dataset.client, dataset.time)
    for array in (*training, dataset.x_test, dataset.y_test, dataset.client_test):
        if array is not None:
            start = checksum_array(array, start)
    return start
