"""User arrays in a folder of ``.npy`` files, which are memory-mapped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.registry import local_path
from thalweg.core.size_limits import check_memory
from thalweg.data.arrays import OPTIONAL, REQUIRED
from thalweg.data.base import Dataset
from thalweg.data.own import Rules, dataset_from_arrays, read_once
from thalweg.data.search import find_user_folder


@dataclass(frozen=True)
class ArrayFolder(Rules):
    """Samples in a folder with x.npy and y.npy, and optionally client.npy, time.npy, x_test.npy and
    y_test.npy; the arrays are those of an ``.npz`` file.

    Images (uint8) stay in the file: only the images of a batch are read, and the mean and the
    deviation of the channels are those of at most 1000 training images at equal distances. Numbers
    are read into memory.
    """

    path: str = local_path()
    """Absolute, or relative to ``--data-dir``, the current folder or THALWEG_DATA."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Open and check the files; the same for every seed."""
        folder = find_user_folder(self.path, data_dir)
        version = tuple((file.name, file.stat().st_mtime_ns) for file in _list_files(folder))
        return read_once(_read, self, folder, version)


def _list_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.npy"))


def _read(source: ArrayFolder, folder: Path) -> Dataset:
    names = [file.stem for file in _list_files(folder)]
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in (*REQUIRED, *OPTIONAL)]
    if missing or unknown:
        got = ", ".join(f"{name}.npy" for name in names) or "no .npy file"
        raise DataError(
            f"{folder}: expected x.npy and y.npy, and optionally "
            f"{', '.join(f'{name}.npy' for name in OPTIONAL)}; got {got}. Write the arrays with "
            "numpy.save, or numpy.lib.format.open_memmap if they do not fit in memory."
        )
    arrays = {name: _open_array(folder / f"{name}.npy") for name in names}
    in_memory = sum(8 * array.size for array in arrays.values() if array.dtype != np.uint8)
    check_memory(
        in_memory, str(folder), "Use fewer rows, or images (uint8), which stay in the files"
    )
    return dataset_from_arrays(**arrays, name=folder.name, rules=source, where=str(folder))


def _open_array(file: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{file} is not a readable .npy file of numbers or texts ({error}). Nothing was "
            "loaded; write it again with numpy.save."
        ) from error
