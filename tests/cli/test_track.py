"""`thalweg run --track`: messages before the run, and a tracker that fails during the run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

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


COMPARE = ["compare", "fedavg", "fedogd", *RUN[2:], "--seeds", "1", "--out", "out"]


def test_comparison_rejects_a_missing_library(
    thalweg: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    done = thalweg(*COMPARE, "--track", "wandb")
    assert done.returncode == 2
    assert "pip install 'thalweg[wandb]'" in done.stderr
    assert not Path("out").exists()


class ListTracker:
    """Stores the calls of all runs."""

    calls: ClassVar[list[tuple[str, Any]]] = []

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def start(self, plan: Any) -> None:
        self.calls.append(("start", (plan.title, self.folder)))

    def log(self, row: Any) -> None:
        self.calls.append(("log", row["round"]))

    def finish(self, result: Any) -> None:
        self.calls.append(("finish", len(result.metrics)))


def test_each_run_of_a_comparison_is_tracked(thalweg: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from thalweg.engine.trackers import TRACKERS

    monkeypatch.setattr(ListTracker, "calls", [])
    monkeypatch.setitem(TRACKERS, "list", ListTracker)
    assert thalweg(*COMPARE, "--track", "list", "--workers", "1").returncode == 0
    expected = []
    for recipe in ("fedavg", "fedogd"):
        title = f"{recipe} on digits-partial, seed 0"
        expected += [("start", (title, Path("out") / recipe / "seed-0"))]
        expected += [("log", 1), ("log", 2), ("finish", 2)]
    assert ListTracker.calls == expected


def test_completion_offers_all_trackers() -> None:
    from thalweg.cli.completion import complete_tracker
    from thalweg.engine.trackers import TRACKERS

    assert complete_tracker("") == list(TRACKERS)
