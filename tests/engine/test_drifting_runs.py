"""Whole runs on drifting data: metrics, summary and run folder."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import thalweg
from thalweg.evaluation import step_accuracies

SHORT = [
    "world.rounds_per_step=2",
    "world.num_clients=6",
    "evaluate_every=2",
    "local.batch_size=64",
    "net.hidden=[8]",
]
STEPPED = ["bank.every=2"]


def run(recipe, *changes, rounds=4, **options):
    return thalweg.run(
        recipe, "drift-digits", rounds=rounds, overrides=[*SHORT, *changes], workers=1, **options
    )


def test_metrics_contain_drifts_and_the_accuracy_of_every_step():
    metrics = run("fedavg-retrain").metrics
    assert [row["round"] for row in metrics if "drifted" in row] == [3]
    assert metrics[2]["drifted"] == 6, "all images are turned"
    last = metrics[-1]
    assert last["accuracy"] == pytest.approx(np.mean(last["concept_accuracy"][:3]))
    assert len(last["concept_accuracy"]) == 4
    assert last["concept_accuracy"][3] is None, "the fourth concept comes with the third step"
    assert step_accuracies(metrics) == [metrics[1]["accuracy"], last["accuracy"]]
    assert "purity" not in last, "one model divides nobody"


def test_all_twelve_tasks_are_evaluated_at_the_end_of_a_step_only():
    metrics = run("fedavg-retrain", "evaluate_every=1").metrics
    assert [row["round"] for row in metrics if "tasks" in row] == [2, 4]
    tasks = metrics[-1]["tasks"]
    assert len(tasks) == 12 * 2
    assert {each["assignment"] for each in tasks} == {"labels", "oracle"}
    names = {each["task"] for each in tasks}
    assert {"1, plain", "4, rotated 120", "2, rotated 240"} <= names
    assert sum(each["clients"] for each in tasks if each["assignment"] == "labels") == 6


def test_tasks_can_be_switched_off():
    assert not any("tasks" in row for row in run("fedavg-retrain", "tasks=false").metrics)


def test_the_accuracy_of_a_concept_is_that_of_its_task():
    last = run("fedavg-retrain").final
    now = {
        each["concept"]: each["accuracy"]
        for each in last["tasks"]
        if each["clients"] and each["assignment"] == "labels"
    }
    for concept, accuracy in now.items():
        assert last["concept_accuracy"][concept - 1] == pytest.approx(accuracy)


@pytest.mark.parametrize(
    ("recipe", "changes"),
    [("fedavg-retrain", []), ("oracle", []), ("feddaa", STEPPED), ("feddrift", [])],
    ids=str,
)
def test_both_engines_give_the_same_metrics(recipe, changes):
    fast, reference = (run(recipe, *changes, engine=engine) for engine in ("fast", "reference"))
    for ours, theirs in zip(fast.metrics, reference.metrics, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ("accuracy", "client_accuracy", "worst_client_accuracy", "test_loss"):
            assert ours.get(name) == pytest.approx(theirs.get(name), abs=0.02)
        assert ours.get("drifted") == theirs.get("drifted")


def test_an_oracle_assigns_clients_by_concept():
    last = run("oracle").final
    assert last["purity"] == 1
    assert last["models"] == 3


def test_the_folder_has_steps_tasks_and_mixtures(tmp_path):
    result = run("oracle", out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["rounds"] == 4
    assert len(summary["steps"]["accuracy"]) == 2
    assert summary["steps"]["step_accuracy"] == np.mean(summary["steps"]["accuracy"])
    assert summary["steps"]["recoveries"][0]["round"] == 3
    assert [each["assignment"] for each in summary["tasks"]] == ["labels", "oracle"]
    assert summary["tasks"][0]["rounds"] == [2, 4]
    bank = load_file(tmp_path / "run" / "bank.safetensors")
    assert bank["mixtures"].shape == (6, 3)
    assert np.allclose(bank["mixtures"].sum(axis=1), 1)
    assert result.final == summary["final"]


def test_a_user_defined_drift_is_evaluated_in_any_world():
    changes = ["drift=sudden", "drift.at=2", "evaluate_every=1", "tasks=true", "net.hidden=[8]"]
    changes.append("world.absent=collecting")
    result = thalweg.run("fedavg", "digits-full", rounds=3, overrides=changes, workers=1)
    assert [row.get("drifted") for row in result.metrics] == [None, None, 20]
    assert ["tasks" in row for row in result.metrics] == [False, True, True]
    before, after = (row["accuracy"] for row in result.metrics[1:])
    assert after < before, "labels are reversed"
    assert [each["clients"] for each in result.final["tasks"]] == [0, 0, 20, 20]


def test_worlds_without_views_have_no_drift_metrics():
    result = thalweg.run(
        "fedavg", "digits-full", rounds=1, overrides=["tasks=true", "net.hidden=[8]"], workers=1
    )
    assert {"tasks", "drifted", "concept_accuracy"}.isdisjoint(result.final)
