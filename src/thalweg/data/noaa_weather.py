"""Fifty years of daily weather at one station: rain or no rain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

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

TITLE = "NOAA weather"
FOLDERS = ("noaa_weather", "noaa", "weather")
FILES = ("noaa_weather.parquet", "noaa_weather.csv", "weather.parquet", "weather.csv")
FEATURES = tuple(f"feat_{number}" for number in range(1, 9))
LABELS = {"0": 0, "1": 1, "false": 0, "true": 1}


@dataclass(frozen=True)
class NoaaWeather(DividedRows):
    """Daily weather in Nebraska, 1949 to 1999 (Elwell and Polikar, 2011): 18,159 rows in order.

    A sample has eight numbers: temperature, dew point, pressure at sea level, visibility, mean and
    maximum wind speed, maximum and minimum temperature. The label is whether it rained, which holds
    for 31 % of the days. Two rows contain an implausible pressure (5500); they are not corrected.

    All rows are tested when they arrive and then used for training; there is no separate test set.
    The unit of time is one day.
    """

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read and check the whole file; the same for every seed."""
        file = self.locate(data_dir)
        table = read_checked_table(file, (*FEATURES, "target"))
        x = np.column_stack([read_numbers(table, name, file) for name in FEATURES])  # (n, F)
        return make_stream_dataset(
            "noaa-weather",
            x,
            read_labels(table, "target", file, LABELS),
            assign_rows(len(x), self.num_clients, self.clients),
            np.arange(len(x), dtype=np.float64),
            standardise=self.standardise,
            class_names=("dry", "rain"),
        )

    def locate(self, data_dir: Path | None) -> Path:
        """Locate the file without reading it."""
        way = (
            "get the NOAA weather data of Elwell and Polikar as CSV or Parquet, in the order of "
            "time, with the columns feat_1 to feat_8 and target (1: rain)"
        )
        return find_file(TITLE, FILES, FOLDERS, data_dir, way)
