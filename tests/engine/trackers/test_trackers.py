"""Trackers: calls in order, failures that do not change the run, and the four libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import thalweg
from thalweg.core.errors import ConfigError
from thalweg.engine.trackers import TrackerWarning, make_trackers

SMALL: dict[str, Any] = {
    "capacity": 16,
    "ticks": 1,
    "world": {"num_clients": 3, "availability": 1.0},
    "workers": 1,
}


def run_small(**options: Any) -> thalweg.Result:
    return thalweg.run("fedavg", "digits-partial", rounds=2, **SMALL | options)


def get_values(result: thalweg.Result) -> list[dict[str, Any]]:
    """The metrics without times."""
    return [{**row, "seconds": None, "core_seconds": None} for row in result.metrics]


class Recorder:
    """A tracker that records its calls, changes its rows and raises in one method."""

    def __init__(self, fails_in: str = "") -> None:
        self.calls: list[tuple[str, Any]] = []
        self.fails_in = fails_in

    def _record(self, method: str, argument: Any) -> None:
        self.calls.append((method, argument))
        if method == self.fails_in:
            raise ConnectionError("no server")

    def start(self, plan: Any) -> None:
        self._record("start", plan.title)

    def log(self, row: dict[str, Any]) -> None:
        self._record("log", row["round"])
        row.clear()

    def finish(self, result: Any) -> None:
        self._record("finish", result)


@pytest.fixture(scope="module")
def plain() -> thalweg.Result:
    return run_small()


def test_calls_of_a_tracker(plain: thalweg.Result) -> None:
    recorder = Recorder()
    result = run_small(track=recorder)
    assert recorder.calls == [
        ("start", "fedavg on digits-partial, seed 0"),
        ("log", 1),
        ("log", 2),
        ("finish", result),
    ]
    assert get_values(result) == get_values(plain)


@pytest.mark.parametrize("method", ["start", "log", "finish"])
def test_failing_tracker_is_reported_once_and_changes_nothing(
    method: str, plain: thalweg.Result
) -> None:
    failing, other, seen = Recorder(method), Recorder(), []
    with pytest.warns(TrackerWarning, match=f"Recorder failed in {method}.*no server") as warned:
        result = run_small(track=[failing, other], watch=lambda event: seen.append(event.row))
    assert len(warned) == 1
    assert [name for name, _ in failing.calls].count(method) == 1
    assert failing.calls[-1][0] == method  # it is not called again
    assert [name for name, _ in other.calls] == ["start", "log", "log", "finish"]
    assert [row["round"] for row in seen] == [1, 2]
    assert get_values(result) == get_values(plain)
    assert result.model.tobytes() == plain.model.tobytes()


def test_finish_is_called_without_a_result_if_the_run_ends_early() -> None:
    recorder = Recorder()

    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_small(track=recorder, watch=stop)
    assert recorder.calls[1:] == [("log", 1), ("finish", None)]


def test_rejected_plan_calls_no_tracker() -> None:
    recorder = Recorder()
    with pytest.raises(ConfigError):
        run_small(track=recorder, augment="standard", data="gaussian-mixture")
    assert recorder.calls == []


def test_unknown_names_and_objects() -> None:
    with pytest.raises(ConfigError, match=r"unknown tracker 'tensorbord'.*'tensorboard'"):
        make_trackers("tensorbord", None)
    with pytest.raises(ConfigError, match=r"methods start, log, finish, got.*no log and"):
        make_trackers(SimpleNamespace(start=print), None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Recorder.*; call it"):
        make_trackers(Recorder, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb", "trackio"])
def test_missing_library_is_reported_before_the_run(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=rf"pip install 'thalweg\[{name}\]'"):
        run_small(track=name, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


class FakeModule(ModuleType):
    """A module whose functions record their calls, and return an object that does the same."""

    def __init__(self, name: str, functions: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        for function, result in functions.items():
            setattr(self, function, self._make(function, result))

    def _make(self, name: str, result: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return result

        return call

    def make_object(self, *methods: str) -> SimpleNamespace:
        return SimpleNamespace(**{name: self._make(f"run.{name}", None) for name in methods})

    def named(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]


def test_mlflow(monkeypatch: pytest.MonkeyPatch, plain: thalweg.Result) -> None:
    functions = ("active_run", "start_run", "log_params", "log_metrics", "end_run")
    fake = FakeModule("mlflow", dict.fromkeys(functions))
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    run_small(track="mlflow")
    title = "fedavg on digits-partial, seed 0"
    assert fake.named("start_run") == [((), {"run_name": title, "nested": False})]
    batches = [args[0] for args, _ in fake.named("log_params")]
    params = {name: value for batch in batches for name, value in batch.items()}
    assert all(len(batch) <= 100 for batch in batches)
    assert params["scenario.local.lr"] == 0.03
    logged = fake.named("log_metrics")
    assert [kwargs for _, kwargs in logged] == [{"step": 1}, {"step": 2}]
    assert logged[-1][0][0]["accuracy"] == plain.final["accuracy"]
    assert "round" not in logged[-1][0][0]
    assert fake.named("end_run") == [((), {"status": "FINISHED"})]


def test_wandb(monkeypatch: pytest.MonkeyPatch, plain: thalweg.Result) -> None:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    fake = FakeModule("wandb", {})
    fake.init = fake._make("init", fake.make_object("log", "finish"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    run_small(track="wandb")
    ((_, options),) = fake.named("init")
    assert (options["project"], options["reinit"]) == ("thalweg", "create_new")
    assert options["config"]["scenario"]["local"]["lr"] == 0.03
    logged = fake.named("run.log")
    assert [kwargs for _, kwargs in logged] == [{"step": 1}, {"step": 2}]
    assert logged[-1][0][0]["accuracy"] == plain.final["accuracy"]
    assert fake.named("run.finish") == [((), {"exit_code": 0})]


def test_trackio(monkeypatch: pytest.MonkeyPatch, plain: thalweg.Result) -> None:
    monkeypatch.setenv("TRACKIO_PROJECT", "mine")
    fake = FakeModule("trackio", dict.fromkeys(("init", "log", "finish")))
    monkeypatch.setitem(sys.modules, "trackio", fake)
    run_small(track="trackio")
    ((_, options),) = fake.named("init")
    assert (options["project"], options["name"]) == ("mine", "fedavg on digits-partial, seed 0")
    logged = fake.named("log")
    assert [kwargs for _, kwargs in logged] == [{"step": 1}, {"step": 2}]
    assert logged[-1][0][0]["accuracy"] == plain.final["accuracy"]
    assert fake.named("finish") == [((), {})]


def test_tensorboard_writes_to_the_run_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, plain: thalweg.Result
) -> None:
    fake = FakeModule("torch.utils.tensorboard", {})
    writer = fake.make_object("add_scalar", "add_text", "flush", "close")
    fake.SummaryWriter = fake._make("SummaryWriter", writer)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboard", ModuleType("tensorboard"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    run_small(track="tensorboard", out=tmp_path / "out")
    folder = str(tmp_path / "out" / "tensorboard")
    assert fake.named("SummaryWriter") == [((folder,), {"purge_step": 1})]
    scalars = [args for args, _ in fake.named("run.add_scalar")]
    assert ("accuracy", plain.final["accuracy"], 2) in scalars
    assert {rnd for _, _, rnd in scalars} == {1, 2}
    assert len(fake.named("run.close")) == 1


@pytest.mark.filterwarnings("ignore")  # of the libraries of TensorBoard
def test_event_files_of_tensorboard(tmp_path: Path, plain: thalweg.Result) -> None:
    pytest.importorskip("tensorboard", exc_type=ImportError)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_small(track="tensorboard", out=tmp_path / "out")
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("accuracy")]
    assert found == [(2, pytest.approx(plain.final["accuracy"]))]
    assert [event.step for event in events.Scalars("loss")] == [1, 2]
