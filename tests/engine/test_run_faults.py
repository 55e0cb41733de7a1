"""Faults at the system calls of real runs of auto: a resumed run has the same bits.

The run on mixed-digits has several models, sessions and session starts, so that its state has
arrays that come and go. `test_faults.py` injects more faults, into a run without training.
"""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from contracts.faults import (
    FailingSystem,
    FaultySystem,
    FullSystem,
    Killed,
    KillingSystem,
    PowerLossSystem,
    using,
)
from thalweg.core.errors import RunError
from thalweg.engine import blobs, run_folder
from thalweg.engine.loop import Progress, run_plan
from thalweg.engine.plan import make_plan
from thalweg.engine.run_folder import RunFolder, RunWarning

PLAN = make_plan(
    "auto",
    "mixed-digits",
    seed=1,
    rounds=8,
    overrides=[
        *("capacity=20", "world.num_clients=6", "net.hidden=8", "evaluate_every=8"),
        *("drift=sudden", "drift.at=3", "drift.share=0.5"),
        *("session_trigger.tolerance=0", "session_trigger.risk=0.4"),
        *("alarm.threshold=1", "alarm.slack=0", "bank.max_conflict=0.2", "bank.significance=1.0"),
    ],
)
TIMES = ("seconds", "core_seconds")


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store models in files of their own, and a snapshot of all clients in every third round."""
    monkeypatch.setattr(blobs, "MIN_BLOB_BYTES", 64)
    monkeypatch.setattr(run_folder, "SNAPSHOT_EVERY", 3)


def play(path: Path, done: list[int]) -> None:
    """Start or resume the run; append each complete round to `done`."""

    def watch(event: Progress) -> None:
        done.append(event.rounds_done)

    run_plan(PLAN, out=path, resume=path.exists(), watch=watch, workers=1, device="cpu")


def content(path: Path) -> dict[str, object]:
    """Return the results of a run, without the times in its metrics."""
    rows = [
        {name: value for name, value in row.items() if name not in TIMES}
        for row in RunFolder(path).metrics()
    ]
    names = ("model.safetensors", "bank.safetensors", "preprocessing.json")
    files: dict[str, object] = {name: (path / name).read_bytes() for name in names}
    return {**files, "metrics": rows, "state": state_bytes(path)}


def state_bytes(path: Path) -> dict[str, bytes]:
    """Return the last states of the server and the clients."""
    kept = sorted((path / "checkpoint").glob(f"server-{PLAN.scenario.rounds:08d}*"))
    clients = sorted((path / "checkpoint").glob("clients-*"))
    return {each.name: each.read_bytes() for each in [*kept, *clients]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the results of a run without faults."""
    path = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch, using(FaultySystem()):
        patch.setattr(blobs, "MIN_BLOB_BYTES", 64)
        patch.setattr(run_folder, "SNAPSHOT_EVERY", 3)
        play(path, [])
    return content(path)


def count_calls(path: Path) -> tuple[int, int]:
    """Return the numbers of system calls and of bytes of a run without faults."""
    system = FullSystem(10**9)
    with using(system):
        play(path, [])
    counting = FaultySystem()
    with using(counting):
        play(path.with_name("counted"), [])
    return counting.calls, 10**9 - system.left


def check_recovers(
    path: Path, whole: dict[str, object], system: FaultySystem, rng: random.Random
) -> None:
    """Run until the fault, resume, and compare."""
    done: list[int] = []
    with using(system), suppress(Killed, RunError):
        play(path, done)
    if isinstance(system, PowerLossSystem):
        system.lose_power(rng)
    again: list[int] = []
    with using(FaultySystem()), warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        play(path, again)
    assert again == [] or again[0] > max(done, default=0), "no complete round is lost"
    assert content(path) == whole
    shutil.rmtree(path)


def systems(path: Path, calls: int, size: int, number: int) -> Iterator[FaultySystem]:
    """Yield faults at places that are evenly spread over the run, `number` of each kind."""
    for index in range(number):
        at = (2 * index + 1) * calls // (2 * number)
        yield KillingSystem(at, half=bool(index % 2))
        yield FailingSystem(at)
        yield FullSystem((2 * index + 1) * size // (2 * number))
        path.mkdir()
        yield PowerLossSystem(path, at)


def check_faults(tmp_path: Path, whole: dict[str, object], number: int) -> int:
    calls, size = count_calls(tmp_path / "all")
    path, rng, faults = tmp_path / "run", random.Random(0), 0
    for system in systems(path, calls, size, number):
        check_recovers(path, whole, system, rng)
        faults += 1
    return faults


def test_the_run_has_several_models_and_sessions(whole: dict[str, object]) -> None:
    rows = whole["metrics"]
    assert isinstance(rows, list)
    decided = {decision["what"] for row in rows for decision in row.get("decisions", ())}
    assert decided >= {"open-session", "choose-start", "open-model"}, decided
    assert max(row.get("models", 1) for row in rows) > 1


def test_faults_in_a_run_of_auto_change_no_bit(tmp_path: Path, whole: dict[str, object]) -> None:
    assert check_faults(tmp_path, whole, number=2) == 8


@pytest.mark.slow
def test_many_faults_in_a_run_of_auto_change_no_bit(
    tmp_path: Path, whole: dict[str, object]
) -> None:
    assert check_faults(tmp_path, whole, number=60) == 240
