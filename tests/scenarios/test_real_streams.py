from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thalweg
from thalweg.core.config import with_overrides
from thalweg.core.types import Ints
from thalweg.engine.builders import make_world
from thalweg.nets import Linear
from thalweg.scenarios import SCENARIOS, Scenario
from thalweg.scenarios.real_streams import REAL_STREAMS

REAL = Path(os.environ.get("THALWEG_DATA", "nowhere"))
FILES = {
    "elec2": "elec2.parquet",
    "weather": "noaa_weather.parquet",
    "flights": "nycflights13.parquet",
    "flights-minutes": "nycflights13.parquet",
}


def write_sample_streams(folder: Path) -> Path:
    """Write a small sample of each stream in the layout of the real files."""
    rng = np.random.default_rng(0)
    period = np.arange(48 * 20) % 48
    numbers = ("day", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
    elec2 = {name: rng.random(len(period)) for name in numbers}
    labels = np.where(elec2["nswprice"] > 0.5, "UP", "DOWN")
    pq.write_table(
        pa.table({**elec2, "period": period / 47, "class": labels}), folder / FILES["elec2"]
    )
    weather = {f"feat_{number}": rng.random(600) for number in range(1, 9)}
    rain = (weather["feat_1"] > 0.6).astype(int)
    pq.write_table(pa.table({**weather, "target": rain}), folder / FILES["weather"])
    n = 400
    delay = rng.normal(0, 20, n).round()
    flights = {
        "month": np.ones(n, dtype=int),
        "day": np.arange(n) // 40 + 1,
        "sched_dep_time": np.arange(n) % 40 // 2 * 100 + 5,
        "sched_arr_time": np.full(n, 1200),
        "dep_delay": delay,
        "arr_delay": delay + rng.normal(0, 5, n).round(),
        "carrier": rng.choice(["AA", "B6", "UA"], n),
        "origin": rng.choice(["EWR", "JFK", "LGA"], n),
        "distance": rng.integers(100, 3000, n),
    }
    pq.write_table(pa.table(flights), folder / FILES["flights"])
    return folder


def arrival_rows(scenario: Scenario, folder: Path) -> list[Ints]:
    """Return the rows that arrive in each round of a run without absences."""
    data = scenario.data.load(folder, 0)
    world, rounds = make_world(scenario, data, 0), []
    states = {client: world.begin(client)[0] for client in range(world.num_clients)}
    for rnd in range(scenario.rounds):
        assert len(world.present(rnd)) == world.num_clients, "no client is ever absent"
        items = []
        for client in states:
            states[client], arrivals = world.emit(states[client], client, rnd)
            items += [arrival.items for arrival in arrivals]
        rounds.append(np.concatenate(items))
    return rounds


def test_real_stream_scenarios_are_registered_under_their_names() -> None:
    for name, make in REAL_STREAMS.items():
        assert SCENARIOS[name] is make
        assert make().name == name


@pytest.mark.parametrize("name", REAL_STREAMS)
def test_every_stream_sample_arrives_and_is_tested_once(name: str, tmp_path: Path) -> None:
    scenario = REAL_STREAMS[name]()
    assert scenario.net == Linear()
    rounds = arrival_rows(scenario, write_sample_streams(tmp_path))
    everything = np.sort(np.concatenate(rounds))
    assert everything.tolist() == list(range(len(everything)))
    assert max(map(len, rounds)) <= scenario.prequential


@pytest.mark.parametrize("name", REAL_STREAMS)
@pytest.mark.parametrize("net", ["linear", "mlp"])
def test_fedavg_learns_from_each_stream_with_either_net(
    name: str, net: str, tmp_path: Path
) -> None:
    changes = [f"net={net}", *([] if name.startswith("flights") else ["data.num_clients=2"])]
    result = thalweg.run(
        "fedavg", name, rounds=8, overrides=changes, data_dir=write_sample_streams(tmp_path)
    )
    assert "accuracy" not in result.final, "nothing is set aside"
    assert "mae" not in result.final, "nothing is set aside"
    if name == "flights-minutes":
        errors = [row["prequential_mae"] for row in result.metrics if "prequential_mae" in row]
        assert np.mean(errors[-3:]) < 0.8 * errors[0]
        return
    rows = [row["prequential_accuracy"] for row in result.metrics if "prequential_accuracy" in row]
    assert np.mean(rows[-3:]) > 0.7
    assert np.mean(rows[-3:]) > rows[0] + 0.1


def test_static_model_equals_fedavg_until_it_stops(tmp_path: Path) -> None:
    folder = write_sample_streams(tmp_path)
    static, adapting = (
        thalweg.run(name, "weather", rounds=8, data_dir=folder, overrides=["data.num_clients=2"])
        for name in ("static", "fedavg")
    )
    still = [row["prequential_accuracy"] for row in static.metrics]
    moved = [row["prequential_accuracy"] for row in adapting.metrics]
    assert still[:3] == moved[:3], "the third round is tested with what two have taught"
    assert not np.array_equal(static.model, adapting.model)


def test_interleaved_clients_receive_rows_of_the_same_day(tmp_path: Path) -> None:
    changes = ["data.clients=interleaved", "world.every=1", "rounds=20"]
    scenario = with_overrides(REAL_STREAMS["elec2"](), changes)
    rounds = arrival_rows(scenario, write_sample_streams(tmp_path))
    assert [np.unique(rows // 48).tolist() for rows in rounds] == [[day] for day in range(20)]


@pytest.mark.parametrize("name", REAL_STREAMS)
def test_real_streams_deliver_all_rows_by_the_last_round(name: str) -> None:
    if not (REAL / FILES[name]).is_file():
        pytest.skip(f"needs {FILES[name]} in THALWEG_DATA")
    rounds = arrival_rows(REAL_STREAMS[name](), REAL)
    everything = np.concatenate(rounds)
    assert (
        len(np.unique(everything))
        == len(everything)
        == {
            "elec2": 45_312,
            "weather": 18_159,
            "flights": 327_346,
            "flights-minutes": 327_346,
        }[name]
    )
    assert len(rounds[-1]) > 0, "no round is empty at the end"


def test_fedavg_learns_from_real_electricity_prices() -> None:
    if not (REAL / FILES["elec2"]).is_file():
        pytest.skip("needs elec2.parquet in THALWEG_DATA")
    result = thalweg.run("fedavg", "elec2", rounds=12, data_dir=REAL)
    assert np.mean([row["prequential_accuracy"] for row in result.metrics[6:]]) > 0.65
