"""Baselines of a regression: they predict numbers and are tested by their absolute error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from thalweg.baselines import BASELINES
from thalweg.core.errors import ConfigError
from thalweg.data import Arrays
from thalweg.engine.baseline import run_baseline
from thalweg.engine.plan import BaselinePlan
from thalweg.local import LocalTraining
from thalweg.nets import Linear
from thalweg.scenarios import Scenario
from thalweg.streams import Replay


def scenario(file: Path) -> Scenario:
    return Scenario(
        "toy",
        LocalTraining(lr=0.1, steps=1),
        data=Arrays(str(file)),
        net=Linear(),
        world=Replay(num_clients=2, arrivals=10, availability=1.0),
        rounds=3,
        ticks=1,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).normal(size=(100, 2))
    np.savez(tmp_path / "numbers.npz", x=x, y=x @ [1.0, 0.5])
    np.savez(tmp_path / "classes.npz", x=x, y=(x[:, 0] > 0).astype(int))
    return tmp_path / "numbers.npz"


@pytest.mark.parametrize("name", ["running-mean", "no-change", "river-linear"])
def test_baselines_of_a_regression_report_their_absolute_error(name: str, file: Path) -> None:
    result = run_baseline(BaselinePlan(BASELINES[name](), scenario(file)))
    assert all(0 < row["prequential_mae"] < 5 for row in result.metrics)
    assert "prequential_accuracy" not in result.final


@pytest.mark.parametrize(
    "name, data", [("majority", "numbers"), ("river-tree", "numbers"), ("running-mean", "classes")]
)
def test_baseline_of_the_other_task_is_rejected(name: str, data: str, file: Path) -> None:
    plan = BaselinePlan(BASELINES[name](), scenario(file.with_name(f"{data}.npz")))
    with pytest.raises(ConfigError, match=f"baseline {name} is for .* Baselines of a regression"):
        run_baseline(plan)
