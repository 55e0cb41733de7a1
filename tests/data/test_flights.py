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
from thalweg.data import Flights

REAL = Path(os.environ.get("THALWEG_DATA", "nowhere"))

# Tuesday 1 January 2013 and the day after, in the order of the file; the third never arrived.
COLUMNS: dict[str, list[Any]] = {
    "month": [1, 1, 1, 1, 1],
    "day": [1, 1, 1, 2, 1],
    "sched_dep_time": [515, 600, 700, 30, 1800],
    "dep_delay": [2.0, -3.0, None, 20.0, 0.0],
    "sched_arr_time": [819, 1200, 900, 330, 2359],
    "arr_delay": [11.0, -20.0, None, 16.0, 0.0],
    "carrier": ["UA", "AA", "UA", "UA", "B6"],
    "flight": [1, 2, 3, 4, 5],
    "origin": ["EWR", "LGA", "EWR", "JFK", "JFK"],
    "dest": ["IAH", "MIA", "IAH", "LAX", "BOS"],
    "distance": [1400, 1089, 1400, 2475, 187],
    "air_time": [227.0, 160.0, None, 330.0, 40.0],
}


def make_table(**changes: Any) -> pa.Table:
    return pa.table({**COLUMNS, **changes})


def save_table(folder: Path, content: pa.Table | None = None) -> Path:
    pq.write_table(make_table() if content is None else content, folder / "nycflights13.parquet")
    return folder


def load_raw(folder: Path, **settings: Any) -> np.ndarray[Any, Any]:
    return np.asarray(Flights(standardise=False, **settings).load(folder, seed=0).x)


def test_arrived_flights_are_sorted_by_departure(tmp_path: Path) -> None:
    data = Flights().load(save_table(tmp_path), seed=0)
    assert data.name == "flights"
    assert data.time is not None
    np.testing.assert_allclose(data.time * 1440, [315, 360, 1080, 1440 + 30])
    assert data.y.tolist() == [1, 0, 0, 1], "in time is not late"
    assert data.client_names == ("AA", "B6", "UA")
    assert data.client is not None
    assert data.client.tolist() == [2, 0, 1, 2]
    assert len(data.y_test) == 0


def test_flight_features_are_known_at_departure(tmp_path: Path) -> None:
    x = load_raw(save_table(tmp_path))
    assert x.shape == (4, 4 + 7 + 3 + 1 + 1)
    np.testing.assert_allclose(x[1, :4], [1, 0, 0, -1], atol=1e-6)  # leaves at 6, arrives at 12
    assert x[1, 4:11].tolist() == [0, 1, 0, 0, 0, 0, 0], "a Tuesday"
    assert x[3, 4:11].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert x[:, 11:14].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0]]
    assert x[:, 14].tolist() == [1400, 1089, 187, 2475]
    assert x[:, 15].tolist() == [2, -3, 0, 20]


def test_flight_features_can_be_limited_to_the_timetable(tmp_path: Path) -> None:
    folder = save_table(tmp_path)
    assert load_raw(folder, at_departure=False).tolist() == load_raw(folder)[:, :15].tolist()


def test_lateness_threshold_can_be_set(tmp_path: Path) -> None:
    assert Flights(late=15).load(save_table(tmp_path), seed=0).y.tolist() == [0, 0, 0, 1]


def test_flight_clients_can_be_airports_or_time_segments(tmp_path: Path) -> None:
    folder = save_table(tmp_path)
    airports = Flights(clients="airports").load(folder, seed=0)
    assert airports.client_names == ("EWR", "JFK", "LGA")
    stretches = Flights(clients="contiguous", num_clients=2).load(folder, seed=0)
    assert stretches.client is not None
    assert stretches.client.tolist() == [0, 0, 1, 1]


def test_published_flights_csv_gives_the_same_data(tmp_path: Path) -> None:
    usual = Flights().load(save_table(tmp_path), seed=0)
    (tmp_path / "nycflights13").mkdir()
    full = make_table(year=[2013] * 5, time_hour=["2013-01-01 05:00:00"] * 5)
    csv.write_csv(full, tmp_path / "nycflights13/flights.csv")
    text = (tmp_path / "nycflights13/flights.csv").read_text().replace(",,", ",NA,")
    (tmp_path / "nycflights13/flights.csv").write_text(text)
    other = Flights().load(tmp_path / "nycflights13", seed=0)
    assert other.x.tobytes() == usual.x.tobytes()
    assert other.y.tolist() == usual.y.tolist()


def test_weekdays_follow_the_year(tmp_path: Path) -> None:
    x = load_raw(save_table(tmp_path, make_table(year=[2014] * 5)))
    assert x[1, 4:11].tolist() == [0, 0, 1, 0, 0, 0, 0], "a Wednesday"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (make_table().drop_columns(["carrier"]), "there is no column carrier"),
        (make_table().slice(0, 0), "expected rows, got none"),
        (
            make_table(arr_delay=pa.array([None] * 5, pa.float32())),
            "no row has a number in column 'arr_",
        ),
        (make_table(month=[1, 1, 1, 13, 1]), "'month' is 13 in row 3 of the flights that landed"),
        (
            make_table(month=[2] * 5, day=[1, 1, 1, 29, 1]),
            "'day' is 29 .*expected a day of its month",
        ),
        (make_table(day=[1, 1, 1, 0, 1]), "column 'day' is 0"),
        (make_table(day=[1, 1, 1, 1.5, 1]), "column 'day' is 1.5 .*expected a whole number"),
        (make_table(sched_dep_time=[515, 660, 700, 30, 1800]), "'sched_dep_time' is 660 in row 2"),
        (make_table(sched_arr_time=[515, -5, 700, 30, 1800]), "'sched_arr_time' is -5 in row 2"),
        (make_table(dep_delay=[None, 1.0, None, 1.0, 1.0]), "row 1, column 'dep_delay' is missing"),
        (make_table(carrier=["UA", None, "UA", "UA", "B6"]), "row 2, column 'carrier' is missing"),
        (make_table(distance=["far"] * 5), "column 'distance' is string.*expected numbers"),
    ],
    ids=[
        *("column", "empty", "nobody", "month", "leap", "day", "fraction", "minute", "negative"),
        *("gap", "carrier", "text"),
    ],
)
def test_invalid_flights_files_are_rejected(tmp_path: Path, content: pa.Table, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Flights().load(save_table(tmp_path, content), seed=0)


def test_invalid_flights_options_are_rejected() -> None:
    with pytest.raises(ConfigError, match="carriers are given by the data, so num_clients=4"):
        Flights(num_clients=4)
    with pytest.raises(ConfigError, match="late"):
        Flights(late=float("nan"))


def test_missing_flights_file_gives_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nycflights13 is not on this machine"):
        Flights().locate(tmp_path)


@pytest.mark.skipif(
    not (REAL / "nycflights13.parquet").is_file(),
    reason="needs nycflights13.parquet in THALWEG_DATA",
)
def test_real_flights_data_match_the_published_counts() -> None:
    data = Flights().load(REAL, seed=0)
    assert data.x.shape == (327_346, 16)
    assert len(data.client_names) == 16
    assert data.y.mean() == pytest.approx(0.4063, abs=1e-4)
    assert np.isfinite(data.x).all()
    assert data.time is not None
    assert int(data.time[-1]) == 364
