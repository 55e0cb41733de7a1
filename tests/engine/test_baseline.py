"""Baselines get the same samples as recipes, and predict them before they learn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contracts.runs import Interruption, interrupt_after
from thalweg.baselines import Baseline, Majority
from thalweg.core.errors import ConfigError, RunError
from thalweg.core.types import Floats32, Job
from thalweg.data import Digits, GaussianMixture, Shakespeare
from thalweg.data.base import Dataset
from thalweg.engine.baseline import run_any_plan, run_baseline
from thalweg.engine.builders import make_client_pool
from thalweg.engine.plan import BaselinePlan, make_any_plan, make_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.local import LocalTraining
from thalweg.nets import Linear
from thalweg.scenarios import Scenario
from thalweg.streams import Groups, Inflow, Replay, Sudden

# Two clients; what arrives at the first is 0 1 0 1, at the second 1 1 1 1.
GROUP = np.array([0, 1] * 4)
LABELS = np.array([0, 1, 1, 1, 0, 1, 1, 1])


def data(**more: Any) -> Dataset:
    x = np.arange(8, dtype=np.float32)[:, None]
    none = np.empty(0, dtype=np.int64)
    return Dataset("made-up", x, LABELS, x[:0], none, 2, client=GROUP, **more)


def scenario(**more: Any) -> Scenario:
    settings: dict[str, Any] = {
        "world": Replay(arrivals=2, availability=1.0, at_end="stop"),
        "rounds": 2,
        "ticks": 1,
        "prequential": 10,
        **more,
    }
    return Scenario(
        "made-up",
        data=GaussianMixture(),
        net=Linear(),
        local=LocalTraining(0.1, passes=1),
        **settings,
    )


class RecordingLearner:
    """Predicts 0 and records its calls."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def predict(self, x: Floats32) -> int:
        self.calls.append(f"test {int(x[0])}")
        return 0

    def learn(self, x: Floats32, label: int) -> None:
        self.calls.append(f"learn {int(x[0])}={label}")


@dataclass(frozen=True)
class RecordingLearners:
    """The recorded calls of all learners, in the order of their creation."""

    calls_by_learner: list[list[str]]

    def begin(self, num_classes: int, seed: int) -> RecordingLearner:
        self.calls_by_learner.append([])
        return RecordingLearner(self.calls_by_learner[-1])


def run_recording(
    problem: Scenario, content: Dataset, **settings: Any
) -> tuple[list[list[str]], list[Any]]:
    learners = RecordingLearners([])
    plan = BaselinePlan(Baseline("recording", learners, **settings), problem)
    return learners.calls_by_learner, run_baseline(plan, data=content).metrics


def test_each_client_has_a_learner_that_learns_after_the_round() -> None:
    calls_by_learner, rows = run_recording(scenario(), data())
    assert calls_by_learner == [
        [
            "test 0",
            "test 2",
            "learn 0=0",
            "learn 2=1",
            "test 4",
            "test 6",
            "learn 4=0",
            "learn 6=1",
        ],
        [
            "test 1",
            "test 3",
            "learn 1=1",
            "learn 3=1",
            "test 5",
            "test 7",
            "learn 5=1",
            "learn 7=1",
        ],
    ]
    assert [row["prequential_accuracy"] for row in rows] == [0.25, 0.25]
    assert [row["cohort"] for row in rows] == [2, 2]
    assert [row["bytes_up"] + row["bytes_down"] for row in rows] == [0, 0]


def test_feedback_per_sample_trains_after_every_sample() -> None:
    (first, _), _ = run_recording(scenario(rounds=1), data(), feedback="sample")
    assert first == ["test 0", "learn 0=0", "test 2", "learn 2=1"]


def test_a_pooled_learner_gets_all_samples_and_counts_their_bytes() -> None:
    (only,), rows = run_recording(scenario(rounds=1), data(), pooled=True, feedback="sample")
    assert [call for call in only if "test" in call] == ["test 0", "test 2", "test 1", "test 3"]
    assert rows[0]["bytes_up"] == 4 * 2 * 4, "a number and a label of four bytes each, four times"


def test_a_pooled_learner_gets_samples_in_order_of_time() -> None:
    timed = data(time=np.arange(8.0))
    (only,), _ = run_recording(scenario(rounds=1), timed, pooled=True, feedback="sample")
    assert [call for call in only if "test" in call] == ["test 0", "test 1", "test 2", "test 3"]


def test_prequential_limits_the_tested_samples_of_a_tick() -> None:
    (first, _), rows = run_recording(scenario(prequential=1, rounds=1), data())
    assert first == ["test 0", "learn 0=0", "learn 2=1"]
    assert rows[0]["prequential_accuracy"] == 0.5


def test_a_round_without_arrivals_has_no_accuracy() -> None:
    _, rows = run_recording(scenario(rounds=3), data())
    assert ["prequential_accuracy" in row for row in rows] == [True, True, False]


def test_samples_that_arrived_while_absent_are_learnt_but_not_tested() -> None:
    collecting = Replay(arrivals=1, availability=0.5, absent="collecting", at_end="stop")
    problem = scenario(world=collecting, rounds=4)
    calls_by_learner, rows = run_recording(problem, data())
    tests = [call for calls in calls_by_learner for call in calls if call.startswith("test")]
    assert len(tests) == sum(row["cohort"] for row in rows), "one sample for each present client"
    learnt = [
        [int(call[6]) for call in calls if call.startswith("learn")] for calls in calls_by_learner
    ]
    assert learnt == [[0, 2, 4, 6][: len(learnt[0])], [1, 3, 5, 7][: len(learnt[1])]]
    assert sum(map(len, learnt)) > len(tests), "with this seed a client returns"


def test_samples_from_the_start_are_learnt_but_not_tested() -> None:
    problem = scenario(world=Inflow(partition=Groups(), historical=0.5, availability=1.0))
    calls_by_learner, rows = run_recording(problem, data())
    calls = [call for calls in calls_by_learner for call in calls]
    assert sum(call.startswith("learn") for call in calls) == 8
    assert sum(call.startswith("test") for call in calls) == 4, (
        "of the client that receives samples"
    )
    assert [row["cohort"] for row in rows] == [2, 2]


def test_baselines_use_the_views_of_a_drifting_world() -> None:
    (first, _), rows = run_recording(scenario(drift=Sudden(at=1)), data())
    assert first[2:4] == ["learn 0=0", "learn 2=1"]
    assert first[6:8] == ["learn 4=1", "learn 6=0"], "labels are reversed"
    assert [row["prequential_accuracy"] for row in rows] == [0.25, 0.75]


def test_a_baseline_and_a_recipe_are_tested_on_the_same_samples() -> None:
    world = Replay(arrivals=2, availability=0.6, absent="collecting", at_end="restart")
    problem = scenario(world=world, rounds=6, ticks=2, prequential=1)
    calls_by_learner, _ = run_recording(problem, data(), pooled=True)
    client_pool = make_client_pool(make_plan("fedavg", problem), data(), num_params=4)
    rows = []
    for rnd in range(6):
        by_tick = []
        for client in client_pool.roster(rnd).present.tolist():
            client_round = client_pool.start_round([Job(client, 0)], rnd)
            by_tick.append(client_round.rows_to_test(1).tolist())
            for _ in range(2):
                client_round.observe()
            client_pool.finish(client_round)
        rows += [row for tick in zip(*by_tick, strict=True) for row in tick]
    assert len(rows) > 8
    assert [call for call in calls_by_learner[0] if "test" in call] == [
        f"test {row}" for row in rows
    ]


def test_only_members_of_the_session_take_part() -> None:
    changes = ["sessions=alternating", "sessions.length=1", "world.availability=1.0"]
    plan = make_any_plan("majority", "gaussian-mixture", rounds=2, overrides=changes)
    assert isinstance(plan, BaselinePlan)
    rows = run_baseline(plan).metrics
    assert [row["session"] for row in rows] == [0, 1]
    assert [row["cohort"] for row in rows] == [10, 10]


def test_pixels_of_images_lie_between_0_and_1() -> None:
    seen: list[float] = []

    @dataclass(frozen=True)
    class RecordsInputs:
        def begin(self, num_classes: int, seed: int) -> Any:
            class Learner(RecordingLearner):
                def predict(self, x: Floats32) -> int:
                    seen.extend([float(x.max()), float(x.min()), len(x)])
                    return 0

                def learn(self, x: Floats32, label: int) -> None: ...

            return Learner([])

    problem = scenario(world=Replay(num_clients=2, arrivals=2, availability=1.0), rounds=1)
    run_baseline(
        BaselinePlan(Baseline("inputs", RecordsInputs()), problem), data=Digits().load(None, 0)
    )
    assert 0.5 < max(seen[0::3]) <= 1
    assert min(seen[1::3]) == 0
    assert seen[2] == 64


def test_sequences_are_rejected() -> None:
    x = np.zeros((2, 5), dtype=np.uint8)
    none = np.empty(0, dtype=np.int64)
    text = Dataset("text", x, np.array([0, 1]), x[:0], none, 2, num_codes=3)
    with pytest.raises(ConfigError, match=r"need features or images, but .* sequences of codes"):
        run_baseline(BaselinePlan(Baseline("m", Majority()), scenario()), data=text)
    assert Shakespeare().stride == 40, "Shakespeare has sequences, too"


def plan(**more: Any) -> BaselinePlan:
    found = make_any_plan("majority", "gaussian-mixture", rounds=4, **more)
    assert isinstance(found, BaselinePlan)
    return found


def without_time(rows: list[Any]) -> list[Any]:
    return [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]


def test_an_interrupted_baseline_starts_again_with_the_same_results(tmp_path: Path) -> None:
    whole = run_baseline(plan(), out=tmp_path / "whole")
    with pytest.raises(Interruption):
        run_baseline(plan(), out=tmp_path / "cut", watch=interrupt_after(2))
    assert RunFolder(tmp_path / "cut").metrics() == [], "there is no checkpoint to continue from"
    again = run_baseline(plan(), out=tmp_path / "cut", resume=True)
    assert without_time(again.metrics) == without_time(whole.metrics)
    assert without_time(RunFolder(tmp_path / "cut").metrics()) == without_time(whole.metrics)
    assert RunFolder(tmp_path / "cut").is_finished(4)
    tested = [row["tested"] for row in again.metrics]
    right = sum(row["prequential_accuracy"] * row["tested"] for row in again.metrics)
    assert again.final["prequential_accuracy"] == pytest.approx(right / sum(tested))
    assert again.final["tested"] == sum(tested)
    assert again.final["round"] == 4


def test_a_finished_baseline_is_not_run_again(tmp_path: Path) -> None:
    first = run_baseline(plan(), out=tmp_path)
    seen: list[Any] = []
    again = run_baseline(plan(), out=tmp_path, resume=True, watch=seen.append)
    assert seen == []
    assert again.metrics == first.metrics


def test_a_folder_of_another_baseline_plan_is_rejected(tmp_path: Path) -> None:
    run_baseline(plan(), out=tmp_path)
    with pytest.raises(RunError, match=r"seed: 0 -> 1"):
        run_any_plan(plan(seed=1), out=tmp_path)
    with pytest.raises(RunError, match="already contains a run"):
        run_baseline(plan(), out=tmp_path)
    with pytest.raises(ConfigError, match="resume needs the run's folder"):
        run_baseline(plan(), resume=True)


def test_a_learner_that_is_not_installed_leaves_no_folder_behind(tmp_path: Path) -> None:
    impossible = make_any_plan(
        "majority", "gaussian-mixture", overrides=["learner=river", "learner.model=tree.Oak"]
    )
    with pytest.raises(ConfigError):
        run_any_plan(impossible, out=tmp_path / "new")
    assert not (tmp_path / "new").exists()
