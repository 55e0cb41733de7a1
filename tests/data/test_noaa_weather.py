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


def table(**changes: Any) -> pa.Table:
    """Forty days, of which every fourth is wet."""
    rng = np.random.default_rng(0)
    columns = {name: rng.normal(50, 10, 40).round(1) for name in FEATURES}
    columns["target"] = (np.arange(40) % 4 == 3).astype(np.int64)
    return pa.table({name: pa.array(value) for name, value in {**columns, **changes}.items()})


def written(folder: Path, content: pa.Table) -> Path:
    pq.write_table(content, folder / "noaa_weather.parquet")
    return folder


def test_every_day_arrives_and_none_is_set_aside(tmp_path: Path) -> None:
    data = NoaaWeather().load(written(tmp_path, table()), seed=0)
    assert data.name == "noaa-weather"
    assert data.x.shape == (40, 8)
    assert len(data.y_test) == 0
    assert data.y[:5].tolist() == [0, 0, 0, 1, 0]
    assert data.class_names == ("dry", "rain")
    assert data.time is not None
    assert data.time[-1] == 39
    assert data.group is not None
    assert np.bincount(data.group).tolist() == [4] * 10
    assert (data.x[::4] == 0).all(), "each client's first day is all it knows"


def test_a_csv_file_says_the_same(tmp_path: Path) -> None:
    usual = NoaaWeather().load(written(tmp_path, table()), seed=0)
    other = tmp_path / "other"
    (other / "weather").mkdir(parents=True)
    csv.write_csv(table(), other / "weather/weather.csv")
    assert NoaaWeather().load(other, seed=0).x.tobytes() == usual.x.tobytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (table().drop_columns(["feat_3", "target"]), "there is no column feat_3, target"),
        (table().slice(0, 0), "expected rows, got none"),
        (table(feat_8=[None, *[1.0] * 39]), "row 1, column 'feat_8' is missing"),
        (table(feat_8=[np.inf, *[1.0] * 39]), "row 1, column 'feat_8' is inf"),
        (table(target=[0, 1, 2, *[0] * 37]), "row 3, column 'target' is '2'; expected one of 0, 1"),
        (table(target=[0, 0.5, *[0] * 38]), "row 2, column 'target' is 0.5"),
    ],
    ids=["column", "empty", "gap", "inf", "label", "fraction"],
)
def test_a_file_that_is_not_it_is_refused(tmp_path: Path, content: pa.Table, said: str) -> None:
    with pytest.raises(DataError, match=said):
        NoaaWeather().load(written(tmp_path, content), seed=0)


def test_more_clients_than_days_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="40 rows cannot be divided among 41 clients"):
        NoaaWeather(num_clients=41).load(written(tmp_path, table()), seed=0)


def test_without_the_file_the_ways_to_get_it_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"NOAA weather is not on this machine(.|\n)*feat_8"):
        NoaaWeather().locate(tmp_path)


@pytest.mark.skipif(
    not (REAL / "noaa_weather.parquet").is_file(),
    reason="needs noaa_weather.parquet in THALWEG_DATA",
)
def test_the_real_days() -> None:
    data = NoaaWeather().load(REAL, seed=0)
    assert data.x.shape == (18159, 8)
    assert data.y.sum() == 5698
    assert np.isfinite(data.x).all()
