"""Cells that are distributed by Ray: messages, lost processes and folders that are not shared."""

from types import SimpleNamespace

import pytest

from thalweg.core.errors import ConfigError
from thalweg.engine.cells import CellJob, run_cells
from thalweg.engine.plan import make_plan
from thalweg.engine.ray import cells
from thalweg.engine.ray.cells import describe_machine, stream_cell
from thalweg.engine.ray.cluster import RayCluster, RayWarning


def make_job(folder, **options):
    plan = make_plan("fedavg", "digits-partial", rounds=2, **options)
    return CellJob("fedavg", plan, folder, "thalweg run")


class FakeError(Exception):
    """The base class of Ray's errors."""


class FakeTaskError(FakeError):
    cause = None


class FakeRemote:
    """Runs the function in this process; `lost` attempts end before the first message."""

    def __init__(self, function, lost):
        self.function, self.lost = function, lost

    def options(self, **_):
        return self

    def remote(self, *arguments):
        if self.lost:
            self.lost -= 1
            return iter([FakeError("the node died")])
        return self.function(*arguments)


def make_connection(lost=0):
    def get(message):
        if isinstance(message, Exception):
            raise message
        return message

    ray = SimpleNamespace(
        remote=lambda function: FakeRemote(function, lost),
        wait=lambda streams, **_: (streams[:1], streams[1:]),
        get=get,
        exceptions=SimpleNamespace(RayError=FakeError, RayTaskError=FakeTaskError),
    )
    cluster = RayCluster()
    return SimpleNamespace(ray=ray, num_workers=2, cluster=cluster, close=lambda: None)


def run_jobs(monkeypatch, jobs, lost=0, watch=None):
    monkeypatch.setattr(cells, "RayConnection", lambda _: make_connection(lost))
    return run_cells(jobs, workers=RayCluster(), watch=watch)


def test_cells_run_and_report_each_round(monkeypatch, tmp_path):
    jobs, events = [make_job(tmp_path / str(seed), seed=seed) for seed in range(3)], []
    assert run_jobs(monkeypatch, jobs, watch=events.append) == {}
    rounds = {job.folder: [] for job in jobs}
    for event in events:
        rounds[event.job.folder].append(event.rounds_done if event.row else "end")
    assert rounds == {job.folder: [1, 2, "end"] for job in jobs}
    assert run_jobs(monkeypatch, jobs, watch=pytest.fail) == {}, "finished cells are not run again"


def test_cell_whose_process_is_lost_is_continued(monkeypatch, tmp_path):
    with pytest.warns(RayWarning, match=r"the node died.*Another node continues"):
        assert run_jobs(monkeypatch, [make_job(tmp_path / "a")], lost=2) == {}


def test_cell_that_is_lost_three_times_fails(monkeypatch, tmp_path):
    job = make_job(tmp_path / "a")
    with pytest.warns(RayWarning):
        failures = run_jobs(monkeypatch, [job], lost=3)
    assert "lost 3 times (the node died)" in failures[job.folder]


def test_folder_that_is_not_shared_is_reported(monkeypatch, tmp_path):
    job = make_job(tmp_path / "a")
    monkeypatch.setattr(cells, "stream_cell", lambda *_: iter([{"event": "done"}]))
    assert "expected a folder that all nodes share" in run_jobs(monkeypatch, [job])[job.folder]


def test_other_machine_is_rejected():
    wanted = describe_machine()
    (message,) = stream_cell({}, {**wanted, "thalweg": "9.9"})
    assert message["event"] == "failed"
    assert "instead of 9.9, so results would differ" in message["reason"]


def test_data_of_this_session_are_rejected(tmp_path):
    import numpy as np

    from thalweg.data.base import Dataset

    data = Dataset.from_arrays(np.eye(20, dtype=np.float32), [0, 1] * 10, client=[0, 1] * 10)
    plan = make_plan("fedavg", data, rounds=1)
    job = CellJob("fedavg", plan, tmp_path / "a", "thalweg run")
    with pytest.raises(ConfigError, match="other machines cannot load data"):
        run_cells([job], workers=RayCluster())
