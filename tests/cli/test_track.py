"""`thalweg run --track`: messages before the run, and a tracker that fails during the run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

RUN = ["run", "fedavg", "--on", "digits-partial", "--rounds", "2", "--set", "world.num_clients=3"]


def test_missing_library(thalweg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    done = thalweg(*RUN, "--track", "wandb")
    assert done.returncode == 2
    assert "pip install 'thalweg[wandb]'" in done.stderr
    assert not Path("runs").exists()


def test_failing_tracker_is_a_warning(thalweg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))  # without any function
    done = thalweg(*RUN, "--track", "mlflow", "--json", "--out", "out")
    assert done.returncode == 0
    assert done.stderr.count("warning: tracker MlflowTracker failed in start") == 1
    assert len(done.stdout.splitlines()) == 3  # two rounds and the result


def test_completion_offers_all_trackers() -> None:
    from thalweg.cli.completion import complete_tracker
    from thalweg.engine.trackers import TRACKERS

    assert complete_tracker("") == list(TRACKERS)
