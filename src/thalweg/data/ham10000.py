"""HAM10000: 10,015 photographs of pigmented skin lesions in 7 classes, as 28 x 28 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import DataError
from thalweg.core.types import Ints
from thalweg.data import search
from thalweg.data.base import Dataset
from thalweg.data.split import split_by_unit

if TYPE_CHECKING:
    import pyarrow as pa

TITLE = "HAM10000"
FOLDERS = ("ham10000", "HAM10000")
PIXELS, METADATA = "hmnist_28_28_RGB.csv", "HAM10000_metadata.csv"
COLUMNS = [f"pixel{i:04d}" for i in range(28 * 28 * 3)]  # row by row, red, green, blue
HOME = "https://www.kaggle.com/datasets/kmader/skin-cancer-mnist-ham10000"
DIAGNOSES = {  # codes of the metadata, in the order of the labels
    "akiec": "actinic keratosis",
    "bcc": "basal cell carcinoma",
    "bkl": "benign keratosis",
    "df": "dermatofibroma",
    "mel": "melanoma",
    "nv": "melanocytic nevus",
    "vasc": "vascular lesion",
}
MEAN, STD = (0.7637, 0.5467, 0.5710), (0.1387, 0.1501, 0.1668)  # of the training pixels, x / 255


@dataclass(frozen=True)
class Ham10000:
    """HAM10000 (Tschandl, Rosendahl and Kittler, 2018) from Kaggle's CSV files.

    There is no official split. Many lesions were photographed several times, so whole lesions are
    held out, about a fifth of every class; the same for every seed. Labels are the diagnoses of the
    metadata in alphabetical order of their codes. The numbers in the pixel file differ between its
    versions and are only used to check that both files have the same rows.
    """

    test_fraction: float = 0.2

    def __post_init__(self) -> None:
        check_ranges(self, test_fraction="(0, 1)")

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read both files; the same for every seed."""
        folder = _find(data_dir)
        x, numbers = _read_pixels(folder / PIXELS)
        y, lesion = _read_metadata(folder / METADATA)
        _check_rows(numbers, y, folder)
        train, test = split_by_unit(y, lesion, self.test_fraction)
        return Dataset(
            name="ham10000",
            x=x[train],
            y=y[train],
            x_test=x[test],
            y_test=y[test],
            num_classes=len(DIAGNOSES),
            mean=MEAN,
            std=STD,
            class_names=tuple(DIAGNOSES.values()),
        )

    def locate(self, data_dir: Path | None) -> object:
        """Locate the files without reading them."""
        return _find(data_dir)


def _find(data_dir: Path | None) -> Path:
    candidates = search.list_folders(FOLDERS, data_dir)
    folder = search.find_folder((PIXELS, METADATA), TITLE, candidates)
    if folder is None:
        ways = [
            f"get {PIXELS} and {METADATA} from {HOME}",
            search.manual_instructions("both files"),
        ]
        why = "cannot be downloaded without an account"
        raise search.not_found_error(TITLE, why, ways, candidates)
    return folder


def _read_pixels(file: Path) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Images (n, 28, 28, 3) and the values (n,) of the label column."""
    import pyarrow as pa

    table = _read_csv(file, {name: pa.uint8() for name in (*COLUMNS, "label")})
    if table.column_names != [*COLUMNS, "label"]:
        raise DataError(
            f"{file}: expected the columns {COLUMNS[0]} to {COLUMNS[-1]} and label, "
            f"got {table.num_columns} columns from {table.column_names[0]}."
        )
    pixels = np.empty((table.num_rows, len(COLUMNS)), dtype=np.uint8)
    for i, name in enumerate(COLUMNS):
        pixels[:, i] = table[name].to_numpy()
    return pixels.reshape(-1, 28, 28, 3), table["label"].to_numpy().astype(np.int64)


def _read_metadata(file: Path) -> tuple[Ints, Ints]:
    """Labels (n,) and lesion numbers (n,)."""
    import pyarrow as pa

    table = _read_csv(file, {"lesion_id": pa.string(), "dx": pa.string()})
    if missing := [name for name in ("lesion_id", "dx") if name not in table.column_names]:
        raise DataError(f"{file}: there is no column {' or '.join(missing)}.")
    codes = list(DIAGNOSES)
    diagnoses = [str(code) for code in table["dx"].to_pylist()]
    if unknown := sorted(set(diagnoses) - set(codes)):
        raise DataError(
            f"{file}: unknown diagnosis {unknown[0]!r} in column dx; known: {', '.join(codes)}."
        )
    lesions = np.unique(np.array(table["lesion_id"].to_pylist(), dtype=str), return_inverse=True)[1]
    return np.array([codes.index(code) for code in diagnoses], dtype=np.int64), lesions


def _read_csv(file: Path, types: dict[str, pa.DataType]) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(column_types=types, null_values=[], strings_can_be_null=False)
    try:
        table = csv.read_csv(file, convert_options=options)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise DataError(f"{file}: {error}. Nothing was loaded.") from error
    if table.num_rows == 0:
        raise DataError(f"{file}: expected rows, got none.")
    return table


def _check_rows(numbers: Ints, labels: Ints, folder: Path) -> None:
    """Require the same rows in both files: each number corresponds to one diagnosis."""
    if len(numbers) != len(labels):
        raise DataError(
            f"{folder}: {len(numbers)} rows in {PIXELS} but {len(labels)} in {METADATA}; "
            "expected the same images in both."
        )
    disagree = np.zeros(len(labels), dtype=bool)
    for ours, theirs in ((numbers, labels), (labels, numbers)):
        _, first, which = np.unique(ours, return_index=True, return_inverse=True)
        disagree |= theirs != theirs[first[which]]  # a number must keep its first meaning
    if disagree.any():
        raise DataError(
            f"{folder}: {PIXELS} and {METADATA} do not have the same rows in the same order: "
            f"the labels of row {disagree.argmax()} disagree with earlier rows. "
            f"Download both from {HOME}."
        )
