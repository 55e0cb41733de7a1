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
from thalweg.data import Elec2
from thalweg.data.elec2 import FEATURES

REAL = Path(os.environ.get("THALWEG_DATA", "nowhere"))


def make_table(days: int = 3, **changes: Any) -> pa.Table:
    """Half hours as in the published table; the price rises in the first half of each day."""
    n = 48 * days
    period = np.arange(n) % 48
    columns = {
        "date": np.arange(n) // 48 / 1000,
        "day": np.arange(n) // 48 % 7 + 1,
        "period": (period / 47).round(6),
        "nswprice": 0.05 + period / 1000,
        "nswdemand": 0.4 + period / 100,
        "vicprice": np.full(n, 0.003467),
        "vicdemand": np.full(n, 0.422915),
        "transfer": np.full(n, 0.414912),
        "class": np.where(period < 24, "UP", "DOWN"),
    }
    return pa.table({name: pa.array(value) for name, value in {**columns, **changes}.items()})


def save_table(folder: Path, content: pa.Table, name: str = "elec2.parquet") -> Path:
    folder.mkdir(exist_ok=True)
    if name.endswith(".csv"):
        csv.write_csv(content, folder / name)
    else:
        pq.write_table(content, folder / name)
    return folder


def test_elec2_rows_are_all_training_rows(tmp_path: Path) -> None:
    data = Elec2(num_clients=4).load(save_table(tmp_path, make_table()), seed=0)
    assert data.name == "elec2"
    assert data.x.shape == (144, 7)
    assert data.x_test.shape == (0, 7)
    assert data.class_names == ("down", "up")
    assert data.y.tolist() == ([1] * 24 + [0] * 24) * 3
    assert data.time is not None
    assert data.time[[0, 48, 143]].tolist() == [0.0, 1.0, 143 / 48]
    assert data.client is not None
    assert np.bincount(data.client).tolist() == [36] * 4


def test_elec2_rows_are_standardised_by_the_past_of_their_client(tmp_path: Path) -> None:
    data = Elec2(num_clients=4).load(save_table(tmp_path, make_table()), seed=0)
    price = data.x[
        36:72, FEATURES.index("nswprice")
    ]  # of the second client: periods 36 to 47, 0 to 23
    assert price[0] == 0
    assert price[1] == pytest.approx(1.0)
    assert price[12] < -1, "a new day is cheap"
    assert (data.x[:, FEATURES.index("transfer")] == 0).all(), "it never moved"


def test_elec2_standardisation_can_be_disabled(tmp_path: Path) -> None:
    data = Elec2(standardise=False).load(save_table(tmp_path, make_table()), seed=0)
    np.testing.assert_allclose(data.x[1], [1, 0.021277, 0.051, 0.41, 0.003467, 0.422915, 0.414912])


@pytest.mark.parametrize(
    "name", ["elec2.csv", "electricity.csv", "electricity.parquet", "electricity-normalized.csv"]
)
def test_elec2_file_layouts_give_the_same_data(tmp_path: Path, name: str) -> None:
    usual = Elec2().load(save_table(tmp_path / "one", make_table()), seed=0)
    other = Elec2().load(save_table(tmp_path / "two", make_table(), name), seed=1)
    assert other.x.tobytes() == usual.x.tobytes()
    assert other.y.tolist() == usual.y.tolist()


def test_elec2_date_column_is_optional(tmp_path: Path) -> None:
    assert (
        len(Elec2().load(save_table(tmp_path, make_table().drop_columns(["date"])), seed=0).y)
        == 144
    )


def test_elec2_rows_can_be_interleaved(tmp_path: Path) -> None:
    data = Elec2(num_clients=3, clients="interleaved").load(
        save_table(tmp_path, make_table()), seed=0
    )
    assert data.client is not None
    assert data.client[:5].tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (make_table().drop_columns(["transfer"]), "there is no column transfer"),
        (make_table().slice(0, 0), "expected rows, got none"),
        (make_table(transfer=[None, *[0.1] * 143]), "row 1, column 'transfer' is missing"),
        (make_table(transfer=[0.1, np.nan, *[0.1] * 142]), "row 2, column 'transfer' is nan"),
        (make_table(transfer=["much"] * 144), "column 'transfer' is string.*expected numbers"),
        (make_table(**{"class": ["UP"] * 143 + ["LEFT"]}), "row 144, column 'class' is 'LEFT'"),
        (
            make_table().take(np.random.default_rng(0).permutation(144)),
            "decreases .* times in 144 rows, expected once in 48",
        ),
    ],
    ids=["column", "empty", "gap", "nan", "text", "label", "shuffled"],
)
def test_invalid_elec2_files_are_rejected(tmp_path: Path, content: pa.Table, said: str) -> None:
    with pytest.raises(DataError, match=said):
        Elec2().load(save_table(tmp_path, content), seed=0)


def test_elec2_labels_may_be_numbers(tmp_path: Path) -> None:
    data = Elec2().load(save_table(tmp_path, make_table(**{"class": [1, 0] * 72})), seed=0)
    assert data.y[:4].tolist() == [1, 0, 1, 0]


def test_missing_elec2_file_gives_remedies(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Elec2 is not on this machine(.|\n)*--data-dir"):
        Elec2().load(tmp_path, seed=0)


def test_invalid_elec2_options_are_rejected() -> None:
    with pytest.raises(ConfigError, match="num_clients"):
        Elec2(num_clients=0)
    with pytest.raises(ConfigError, match="unknown clients 'states'"):
        Elec2(clients="states")  # type: ignore[arg-type]


@pytest.mark.skipif(
    not (REAL / "elec2.parquet").is_file(), reason="needs elec2.parquet in THALWEG_DATA"
)
def test_real_elec2_data_match_the_published_counts() -> None:
    data = Elec2().load(REAL, seed=0)
    assert data.x.shape == (45312, 7)
    assert np.bincount(data.y).tolist() == [26075, 19237]
    assert np.isfinite(data.x).all()
    assert (data.y[1:] == data.y[:-1]).mean() == pytest.approx(0.8533, abs=1e-4)
