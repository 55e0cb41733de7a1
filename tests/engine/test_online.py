"""Scores of baselines on the test set, and predictions without features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import thalweg
from thalweg.baselines import Baseline, Majority, NoChange, RiverClassifier
from thalweg.baselines.simple import Mean
from thalweg.data import Dataset, Digits, GaussianMixture
from thalweg.engine.baseline import run_baseline
from thalweg.engine.builders import make_world
from thalweg.engine.online import can_score_test_set, score_simple_predictions
from thalweg.engine.plan import BaselinePlan, make_plan
from thalweg.local import LocalTraining
from thalweg.nets import Linear
from thalweg.scenarios import Scenario
from thalweg.streams import Replay

# Two clients; the labels of the first are 0 0 0 1, those of the second 1 1 1 0.
OWNER = np.array([0, 1] * 4)
LABELS = np.array([0, 1, 0, 1, 0, 1, 1, 0])
# Of the test samples, the first three belong to the first client.
TEST_LABELS = np.array([0, 0, 1, 1])
TEST_OWNER = np.array([0, 0, 0, 1])


def make_data(labels: Any = LABELS, test: Any = TEST_LABELS, **more: Any) -> Dataset:
    x = np.arange(len(labels), dtype=np.float32)[:, None]
    fields = {"client": OWNER, "client_test": TEST_OWNER, **more}
    classes = 2 if labels.dtype.kind == "i" else 0
    return Dataset("made-up", x, labels, x[: len(test)], test, classes, **fields)


def run_rows(learner: Any, data: Dataset, **settings: Any) -> list[Any]:
    scenario = Scenario(
        "made-up",
        data=GaussianMixture(),
        net=Linear(),
        local=LocalTraining(0.1, passes=1),
        world=Replay(arrivals=2, availability=1.0),
        rounds=2,
        ticks=1,
        prequential=10,
    )
    plan = BaselinePlan(Baseline("learner", learner, **settings), scenario)
    return run_baseline(plan, data=data).metrics


def test_a_test_sample_is_predicted_by_the_learner_of_its_client() -> None:
    first, last = run_rows(Majority(), make_data())
    assert "accuracy" not in first, "the test set is used once, at the end"
    # The first client predicts 0 for (0, 0, 1), the second 1 for (1).
    assert last["accuracy"] == 0.75
    assert last["client_accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert "test_loss" not in last


def test_without_clients_of_the_test_samples_the_learners_are_averaged() -> None:
    # 0 is right for two of four samples, and so is 1.
    last = run_rows(Majority(), make_data(client_test=None))[-1]
    assert last["accuracy"] == 0.5


def test_pooled_learner_predicts_the_whole_test_set() -> None:
    labels = np.array([1, 1, 1, 1, 0, 1, 1, 0])
    test = np.array([1, 1, 1, 0])
    assert run_rows(Majority(), make_data(labels, test), pooled=True)[-1]["accuracy"] == 0.75


def test_errors_of_a_regression_are_scored() -> None:
    targets = np.array([1.0, 5.0, 3.0, 5.0, 1.0, 5.0, 3.0, 5.0], dtype=np.float32)
    data = make_data(targets, np.array([2.0, 3.0, 4.0, 4.0], dtype=np.float32))
    # Means 2 and 5: errors 0, 1, 2 and 1.
    last = run_rows(Mean(), data)[-1]
    assert last["mae"] == 1.0
    assert last["rmse"] == pytest.approx(np.sqrt(1.5))


def test_baselines_without_test_scores() -> None:
    assert "accuracy" not in run_rows(NoChange(), make_data())[-1], "it needs the last label"
    none = make_data(test=np.empty(0, dtype=np.int64), client_test=None)
    assert "accuracy" not in run_rows(Majority(), none)[-1]
    scenario = make_plan("fedavg", "digits-partial").scenario
    unknown = make_data(client_test=None)
    world = make_world(scenario, Digits().load(None, 0), 0)
    plan = BaselinePlan(Baseline("tree", RiverClassifier()), scenario)
    assert not can_score_test_set(plan, unknown, world), "one learner per client needs features"
    pooled = replace(plan, baseline=replace(plan.baseline, pooled=True))
    assert can_score_test_set(pooled, unknown, world)


def make_own_plan(data: Dataset, **settings: Any) -> Any:
    return make_plan("fedavg", data, overrides=["ticks=1", "world.arrivals=2"], **settings)


def test_simple_predictions_by_hand() -> None:
    data = make_data()
    plan = make_own_plan(data)
    assert plan.scenario.rounds == 2
    found = score_simple_predictions(plan, data)
    # Round 1: the pooled majority is 0 at first: 2 of (0, 0; 1, 1) are right. Then both classes
    # have two samples and the smaller one is predicted: 0 for (0, 1; 1, 0), again 2 right.
    # All eight labels: four of each, so the test set is predicted as 0: 2 of 4.
    assert found["majority"] == {"prequential_accuracy": 0.5, "accuracy": 0.5}
    # Last label: 0 for all four at first, 2 right; then 0 for (0, 1) and 1 for (1, 0): 2 right.
    assert found["no-change"] == {"prequential_accuracy": 0.5}


def test_simple_predictions_do_not_read_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data()
    plan = make_own_plan(data)
    monkeypatch.delattr(Dataset, "samples")
    assert set(score_simple_predictions(plan, data)) == {"majority", "no-change"}


def test_without_test_then_train_only_test_scores_are_known() -> None:
    data = make_data()
    plan = make_own_plan(data)
    plan = replace(plan, scenario=replace(plan.scenario, prequential=0))
    assert score_simple_predictions(plan, data) == {"majority": {"accuracy": 0.5}}


def test_several_targets_have_no_simple_predictions() -> None:
    targets = np.zeros((8, 2), dtype=np.float32)
    data = make_data(targets, targets[:4])
    assert score_simple_predictions(make_own_plan(data), data) == {}


def test_runs_on_data_of_the_user_have_simple_scores(tmp_path: Any) -> None:
    result = thalweg.run("fedavg", make_data(), overrides=["ticks=1"], out=tmp_path / "run")
    assert set(result.simple_scores) == {"majority", "no-change"}
    assert thalweg.load(tmp_path / "run").simple_scores == result.simple_scores
    assert "<th>predicting the majority class</th>" in result._repr_html_()
    assert thalweg.run("fedavg", "digits-partial", rounds=1).simple_scores == {}
