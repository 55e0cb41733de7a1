"""User arrays in one ``.npz`` file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thalweg.core.errors import require
from thalweg.core.registry import local_path
from thalweg.data.base import Dataset
from thalweg.data.npz import read_npz
from thalweg.data.own import Rules, dataset_from_arrays, read_once
from thalweg.data.search import find_user_file

REQUIRED = ("x", "y")
OPTIONAL = ("client", "time", "x_test", "y_test")


@dataclass(frozen=True)
class Arrays(Rules):
    """Samples from a NumPy ``.npz`` file, read without pickles.

    x, x_test
        images, uint8, (n, H, W) or (n, H, W, C); features, any numbers, (n, F); or numbers of any
        other shape (n, ..., C), such as windows of T steps (n, T, C), for a module of your own
    y, y_test
        classification: labels, integers or text, (n,); the distinct values in sorted order are the
        classes. Regression: numbers, (n,) or (n, D); they are not scaled
    client
        the client of each row of x, integers or text, (n,)
    time
        time of each row of x, numbers or dates, (n,)

    Only x and y are required. Without x_test and y_test a part of x is held out: with a time, the
    end of every client's history; otherwise the same random part of every class for every run (in
    a regression: of all rows). With clients, the client of each test row is known as well.
    """

    path: str = local_path()
    """Absolute, or relative to ``--data-dir``, the current folder or THALWEG_DATA."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.path.lower().endswith(".npz"),
            f"expected a path ending in .npz, got {self.path!r}.",
        )

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read and check the whole file; the same for every seed."""
        file = find_user_file(self.path, data_dir)
        return read_once(_read, self, file, file.stat().st_mtime_ns)


def _read(source: Arrays, file: Path) -> Dataset:
    arrays = read_npz(file, REQUIRED, OPTIONAL)
    return dataset_from_arrays(**arrays, name=file.stem, rules=source, where=str(file))
