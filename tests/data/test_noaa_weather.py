from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from thalweg.core.errors import ConfigError, DataError
from thalweg.data import NoaaWeather
from thalweg.data.noaa_weather import FEATURES

REAL = Path(os.environ.get("THALWEG_DATA", "nowhere"))


def make_table(**changes: Any) -> pa.Table:
    """Forty days, of which every fourth is wet."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(50, 10, 40).round(1) for name in FEATURES}
    columns["target"] = (np.arange(40) % 4 == 3).astype(np.int64)
    return pa.table({name: pa.array(value) for name, value in {**columns, **changes}.items()})


def save_table(folder: Path, content: pa.Table) -> Path:
    pq.write_table(content, folder / "noaa_weather.parquet")
    return folder


def test_noaa_weather_days_are_all_training_rows(tmp_path: Path) -> None:
    data = NoaaWeather().load(save_table(tmp_path, make_table()), seed=0)
    assert data.name == "noaa-weather"
    assert data.x.shape == (40, 8)
    assert len(data.y_test) == 0
    assert data.y[:5].tolist() == [0, 0, 0, 1, 0]
    assert data.class_names == ("dry", "rain")
    assert data.time is not None
    assert data.time[-1] == 39
    assert data.client is not None
    assert np.bincount(data.client).tolist() == [4] * 10
    assert (data.x[::4] == 0).all(), "each client's first day is all it knows"


def test_noaa_weather_csv_gives_the_same_data(tmp_path: Path) -> None:
    usual = NoaaWeather().load(save_table(tmp_path, make_table()), seed=0)
    other = tmp_path / "other"
    (other / "weather").mkdir(parents=True)
    csv.write_csv(make_table(), other / "weather/weather.csv")
    assert NoaaWeather().load(other, seed=0).x.tobytes() == usual.x.tobytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (make_table().drop_columns(["feat_3", "target"]), "there is no column feat_3, target"),
        (make_table().slice(0, 0), "expected rows, got none"),
        (make_table(feat_8=[None, *[1.0] * 39]), "row 1, column 'feat_8' is missing"),
        (make_table(feat_8=[np.inf, *[1.0] * 39]), "row 1, column 'feat_8' is inf"),
        (
            make_table(target=[0, 1, 2, *[0] * 37]),
            "row 3, column 'target' is '2'; expected one of 0, 1",
        ),
        (make_table(target=[0, 0.5, *[0] * 38]), "row 2, column 'target' is 0.5"),
    ],
    ids=["column", "empty", "gap", "inf", "label", "fraction"],
)
def test_invalid_noaa_weather_files_are_rejected(
    tmp_path: Path, content: pa.Table, said: str
) -> None:
    with pytest.raises(DataError, match=said):
        NoaaWeather().load(save_table(tmp_path, content), seed=0)


def test_more_clients_than_days_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="40 rows cannot be divided among 41 clients"):
        NoaaWeather(num_clients=41).load(save_table(tmp_path, make_table()), seed=0)


def test_missing_noaa_weather_file_gives_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"NOAA weather is not on this machine(.|\n)*feat_8"):
        NoaaWeather().locate(tmp_path)


@pytest.mark.skipif(
    not (REAL / "noaa_weather.parquet").is_file(),
    reason="needs noaa_weather.parquet in THALWEG_DATA",
)
def test_real_noaa_weather_data_match_the_published_counts() -> None:
    data = NoaaWeather().load(REAL, seed=0)
    assert data.x.shape == (18159, 8)
    assert data.y.sum() == 5698
    assert np.isfinite(data.x).all()
