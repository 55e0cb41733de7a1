import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from thalweg.core.errors import ConfigError, RunError
from thalweg.core.remedies import messages_for
from thalweg.engine.cells import CellJob, is_done, run_cells
from thalweg.engine.plan import make_plan, plan_to_toml

ROUNDS = 20  # enough that a cell is not finished when its first round is reported


def job(folder, recipe="fedavg", seed=0, overrides=(), rounds=3):
    small = ["capacity=24", "local.passes=1", *overrides]
    plan = make_plan(recipe, "digits-partial", seed=seed, rounds=rounds, overrides=small)
    return CellJob(recipe, plan, folder, f"thalweg run {recipe}")


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """A cell that fails and two that succeed, run by two processes."""
    folder = tmp_path_factory.mktemp("cells")
    bad = job(folder / "bad", overrides=["local.lr=1e18"], rounds=20)
    good = [job(folder / str(seed), seed=seed) for seed in range(2)]
    with messages_for("command line"):
        failures = run_cells([bad, *good], workers=2)
    return bad, good, failures


def test_a_cell_that_fails_is_reported_and_the_others_are_run(two_processes):
    bad, good, failures = two_processes
    assert list(failures) == [bad.folder]
    assert "not a finite number" in failures[bad.folder]
    assert "(--set local.lr=...)" in failures[bad.folder], (
        "as the caller of the processes writes it"
    )
    assert all(is_done(each) for each in good)
    assert not is_done(bad)


def test_two_processes_give_the_same_bits_as_one(two_processes, tmp_path):
    _, good, _ = two_processes
    jobs = [job(tmp_path / str(seed), seed=seed) for seed in range(2)]
    assert run_cells(jobs, workers=1) == {}
    for ours, theirs in zip(jobs, good, strict=True):
        one, two = (each.folder / "model.safetensors" for each in (ours, theirs))
        assert one.read_bytes() == two.read_bytes()


def test_finished_cells_are_not_run_again(two_processes):
    _, good, _ = two_processes
    events = []
    run_cells(good, workers=2, watch=events.append)
    assert events == []


def test_a_folder_with_another_plan_is_rejected(tmp_path):
    run_cells([job(tmp_path / "a")], workers=1)
    with pytest.raises(RunError, match="seed: 0 -> 1"):
        run_cells([job(tmp_path / "a", seed=1)], workers=1)


def test_a_killed_process_is_reported_and_replaced(tmp_path):
    jobs = [job(tmp_path / str(seed), seed=seed, rounds=ROUNDS) for seed in range(3)]
    killed = []

    def kill_first(event):
        lock = event.job.folder / ".lock"
        if not killed and event.row is not None and lock.exists():
            killed.append(event.job.folder)
            for process in children():
                os.kill(process, signal.SIGKILL)
                break

    failures = run_cells(jobs, workers=2, watch=kill_first)
    assert len(failures) == 1
    assert "process died" in next(iter(failures.values()))
    assert sum(is_done(each) for each in jobs) == 2
    assert run_cells(jobs, workers=1) == {}
    assert all(is_done(each) for each in jobs)
    assert json.loads((jobs[0].folder / "summary.json").read_text())["rounds"] == ROUNDS


@pytest.mark.slow
def test_no_cell_is_started_after_an_interruption(tmp_path):
    jobs = [job(tmp_path / str(seed), seed=seed, rounds=ROUNDS) for seed in range(3)]
    before = set(threading.enumerate())

    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(jobs, workers=2, watch=interrupt)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert list(children()) == []
    assert not jobs[2].folder.exists()
    assert run_cells(jobs, workers=1) == {}


def test_a_worker_ends_without_output_if_its_parent_is_gone_and_its_cell_can_be_resumed(tmp_path):
    cell = job(tmp_path / "a", rounds=ROUNDS)
    request = {
        "plan": plan_to_toml(cell.plan),
        "out": str(cell.folder),
        "data_dir": None,
        "track": [],
        "device": "auto",
        "caller": "run",
    }
    worker = subprocess.Popen(
        [sys.executable, "-m", "thalweg.engine.cell_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    worker.stdin.write(json.dumps({**request, "command": cell.command}) + "\n")
    worker.stdin.flush()
    assert json.loads(worker.stdout.readline())["event"] == "round"
    worker.stdout.close()
    assert worker.wait(timeout=60) == 0
    assert worker.stderr.read() == ""
    worker.stdin.close()
    worker.stderr.close()
    assert not is_done(cell)
    assert run_cells([cell], workers=1) == {}
    assert is_done(cell)


def children():
    """Yield the ids of worker processes that this process has started."""
    me = str(os.getpid())
    for status in Path("/proc").glob("[0-9]*/stat"):
        fields = status.read_text().rpartition(")")[2].split()
        if fields[1] == me and b"cell_worker" in (status.parent / "cmdline").read_bytes():
            yield int(status.parent.name)


SCRIPT = """
import numpy as np
import thalweg
from torch import nn

class Net(nn.Linear):
    def __init__(self):
        super().__init__(2, 1)

rng = np.random.default_rng(0)
np.savez("data.npz", x=rng.normal(size=(40, 2)), y=rng.normal(size=40), client=np.arange(40) % 2)
found = thalweg.compare(["fedavg", "fedprox"], "data.npz", model=Net, seeds=1, rounds=1, workers=2)
print("cells", [cell.status for cell in found.cells])
"""


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_run_once(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "cells ['done', 'done']\n", done.stderr


def test_a_file_that_starts_a_run_when_imported_is_rejected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    with pytest.raises(ConfigError, match=r"script.py starts a run when it is imported"):
        make_plan("fedavg", "digits-partial", loss="script.py:Net")
