from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import thalweg
from thalweg.core.errors import ConfigError, DataError, RunError
from thalweg.data import Dataset
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml


def make_data(seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 120)
    return Dataset.from_arrays(
        rng.normal(size=(120, 3)) + y[:, None], y, client=np.arange(120) % 4, name="mine"
    )


def test_data_set_is_accepted_as_a_scenario_and_each_row_arrives_once() -> None:
    data = make_data()
    result = thalweg.run("fedavg", data, workers=1)
    assert len(result.metrics) == np.bincount(data.client).max()  # one row per client and round
    assert result.final["accuracy"] > 0.7


def test_interrupted_run_is_resumed_with_the_same_data_only(tmp_path: Path) -> None:
    data = make_data()
    plan = make_plan("fedavg", data)
    with pytest.raises(DataError, match="were passed as an object from Python"):
        plan_from_toml(plan_to_toml(plan), "plan").scenario.data.load(None, 0)

    class Stop(Exception):
        pass

    def stop_after_two(progress: object) -> None:
        if getattr(progress, "rounds_done", 0) == 2:
            raise Stop

    with pytest.raises(Stop):
        thalweg.run("fedavg", data, out=tmp_path / "run", watch=stop_after_two, workers=1)
    with pytest.raises(RunError, match="checksum"):
        thalweg.run("fedavg", make_data(1), out=tmp_path / "run", resume=True, workers=1)
    resumed = thalweg.run("fedavg", data, out=tmp_path / "run", resume=True, workers=1)
    np.testing.assert_array_equal(resumed.model, thalweg.run("fedavg", data, workers=1).model)


def test_data_sets_can_be_compared() -> None:
    found = thalweg.compare(["fedavg", "fedprox"], make_data(), seeds=2, rounds=2)
    assert all(cell.is_done for cell in found.cells)


def test_other_objects_are_rejected_with_a_remedy() -> None:
    with pytest.raises(
        ConfigError, match=r"got dict. Convert a table with thalweg.Dataset.from_fra"
    ):
        thalweg.run("fedavg", {"a": [1]})  # type: ignore[arg-type]
