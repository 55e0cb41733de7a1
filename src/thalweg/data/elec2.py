"""Elec2: is the price of electricity above its mean of the last day?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thalweg.core.errors import DataError
from thalweg.core.types import Floats
from thalweg.data.base import Dataset
from thalweg.data.columns import read_numbers
from thalweg.data.tabular_stream import (
    DividedRows,
    assign_rows,
    find_file,
    make_stream_dataset,
    read_checked_table,
    read_labels,
)

TITLE = "Elec2"
FOLDERS = ("elec2", "electricity")
FILES = (
    "elec2.parquet",
    "elec2.csv",
    "electricity.parquet",
    "electricity.csv",
    "electricity-normalized.csv",
)
FEATURES = ("day", "period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
LABELS = {"down": 0, "up": 1, "0": 0, "1": 1, "false": 0, "true": 1}
ROWS_PER_DAY = 48


@dataclass(frozen=True)
class Elec2(DividedRows):
    """Electricity market of New South Wales, 1996 to 1998 (Harries, 1999): 45,312 half hours.

    A sample contains day of the week, time of day, price and demand here and in Victoria, and the
    transfer between the two. The label is whether the price is above its mean of the last 24 hours.
    Labels mostly repeat: predicting the last label is right in 85 % of the cases. The published
    values were scaled to [0, 1] with knowledge of all rows; this cannot be undone. The column
    ``date`` is not used.

    All rows are tested when they arrive and then used for training; there is no separate test set.
    The unit of time is one day.
    """

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read and check the whole file; the same for every seed."""
        file = self.locate(data_dir)
        table = read_checked_table(file, (*FEATURES, "class"))
        x = np.column_stack([read_numbers(table, name, file) for name in FEATURES])  # (n, F)
        _check_order(x[:, FEATURES.index("period")], file)
        return make_stream_dataset(
            "elec2",
            x,
            read_labels(table, "class", file, LABELS),
            assign_rows(len(x), self.num_clients, self.clients),
            np.arange(len(x)) / ROWS_PER_DAY,
            standardise=self.standardise,
            class_names=("down", "up"),
        )

    def locate(self, data_dir: Path | None) -> Path:
        """Locate the file without reading it."""
        way = "get the table 'electricity' (Elec2, 45,312 rows with names) as CSV or Parquet"
        return find_file(TITLE, FILES, FOLDERS, data_dir, way)


def _check_order(period: Floats, file: Path) -> None:
    """Require time order: in ordered half hours, the time of day decreases once per day."""
    back = int(np.count_nonzero(np.diff(period) < 0))
    if back > 2 * len(period) / ROWS_PER_DAY + 1:
        raise DataError(
            f"{file}: the time of day (column 'period') decreases {back} times in {len(period)} "
            f"rows, expected once in {ROWS_PER_DAY}; the rows are not in time order."
        )
