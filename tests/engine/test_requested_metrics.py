"""Metrics that a scenario requests: by name or as functions."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score
from typer.testing import CliRunner

import thalweg
from thalweg.cli.main import app
from thalweg.core.errors import ConfigError
from thalweg.engine.plan import make_plan, plan_from_toml, plan_to_toml
from thalweg.evaluation.named import NAMED_METRICS


def share_of_zeros(targets: Any, predicted: Any) -> float:
    return float((predicted == 0).mean())


def broken(targets: Any, predicted: Any) -> float:
    raise KeyError("broken")


def run(**settings: Any) -> thalweg.Result:
    return thalweg.run("fedavg", "digits-partial", rounds=1, **settings)


def test_requested_metrics_are_in_the_rows() -> None:
    plain = run()
    result = run(metrics=["accuracy", "f1", "auroc", "log_loss", share_of_zeros])
    assert set(result.final) - set(plain.final) == {"f1", "auroc", "log_loss", "share_of_zeros"}
    assert result.final["accuracy"] == plain.final["accuracy"]
    assert result.final["log_loss"] == pytest.approx(plain.final["test_loss"], rel=1e-4)
    assert np.array_equal(result.model, plain.model)


def test_named_metrics_equal_those_of_scikit_learn() -> None:
    targets, probabilities = np.array([0, 1, 1, 0]), np.array([0.2, 0.7, 0.4, 0.6])
    both = np.column_stack([1 - probabilities, probabilities])
    guesses = both.argmax(axis=1)
    auroc = roc_auc_score(targets, probabilities)
    assert NAMED_METRICS["auroc"].compute(targets, both) == (auroc, "")
    expected = f1_score(targets, guesses, average="macro")
    assert NAMED_METRICS["f1"].compute(targets, guesses) == (expected, "")


def test_auroc_is_averaged_over_the_classes_that_the_targets_have() -> None:
    # Class 2 is absent. Pairs of a sample of the class and another one, ordered correctly:
    # class 0: 2 of 2; class 1: 1 of 2.
    targets = np.array([0, 1, 1])
    probabilities = np.array([[0.5, 0.3, 0.2], [0.4, 0.2, 0.4], [0.1, 0.6, 0.3]])
    assert NAMED_METRICS["auroc"].compute(targets, probabilities) == (0.75, "")
    targets = np.array([0, 1, 2])
    expected = roc_auc_score(targets, probabilities, multi_class="ovr")
    assert NAMED_METRICS["auroc"].compute(targets, probabilities) == (expected, "")


def test_auroc_of_one_class_is_reported() -> None:
    value, reason = NAMED_METRICS["auroc"].compute(np.zeros(2, int), np.full((2, 3), 1 / 3))
    assert np.isnan(value)
    assert "expected targets of at least two classes, got only [0]" in reason


def test_failing_metric_is_nan_with_one_warning_and_does_not_end_the_run() -> None:
    shapes = r"targets \((\d+),\) of int64 and predictions \(\1,\) of int64"
    with pytest.warns(UserWarning, match="the metric broken") as caught:
        result = thalweg.run(
            "fedavg", "gaussian-mixture", rounds=2, evaluate_every=1, metrics=broken
        )
    (message,) = [str(each.message) for each in caught]
    assert re.search(rf"round 1: the metric broken raised KeyError: 'broken'\. .*{shapes}", message)
    assert all(math.isnan(row["broken"]) for row in result.metrics)


def test_metrics_need_different_names_that_are_not_taken() -> None:
    with pytest.raises(ConfigError, match="expected different names, got f1 2 times"):
        run(metrics=["f1", "f1"])
    with pytest.raises(ConfigError, match="accuracy is the name of a built-in metric"):
        run(metrics=["accuracy=mine.py:f"])
    with pytest.raises(ConfigError, match="expected a name of letters"):
        run(metrics=thalweg.NamedMetric("a b", share_of_zeros))


def test_plan_records_the_name_and_the_direction_of_a_metric() -> None:
    metric = thalweg.NamedMetric("zeros", share_of_zeros, higher_is_better=False)
    plan = make_plan("fedavg", "digits-partial", metrics=metric, headline="zeros")
    assert plan.scenario.metrics == (f"zeros={__name__}:share_of_zeros:lower",)
    again = plan_from_toml(plan_to_toml(plan), "plan.toml")
    assert again == plan
    assert again.scenario.own_metrics["zeros"].better == "lower"


def test_headline_is_requested_and_must_have_a_direction() -> None:
    plan = make_plan("fedavg", "digits-partial", overrides=["headline=f1"])
    assert plan.scenario.metrics == ("f1",)
    with pytest.raises(ConfigError, match="unknown headline 'f2'"):
        make_plan("fedavg", "digits-partial", headline="f2")
    with pytest.raises(ConfigError, match=r"with a direction.*higher_is_better=True"):
        make_plan("fedavg", "digits-partial", metrics=share_of_zeros, headline="share_of_zeros")


@pytest.mark.parametrize("text", ["f1,auroc", '["f1", "auroc"]', "f1, auroc"])
def test_list_of_metrics_needs_no_brackets(text: str) -> None:
    plan = make_plan("fedavg", "digits-partial", overrides=[f"metrics={text}"])
    assert plan.scenario.metrics == ("f1", "auroc")
    assert make_plan("fedavg", "digits-partial", metrics="f1").scenario.metrics == ("f1",)
    one = make_plan("fedavg", "digits-partial", overrides=["metrics=f1"])
    assert one.scenario.metrics == ("f1",)


def test_unsuitable_metrics_are_rejected_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"metrics=mae is for regression.*accuracy"):
        run(metrics="mae")
    with pytest.raises(ConfigError, match="unknown metric 'f2'"):
        run(metrics=["f2"])
    with pytest.raises(ConfigError, match=r"expected higher, lower or probabilities .*'sideways'"):
        run(metrics=["mine.py:bias:sideways"])
    with pytest.raises(
        ConfigError, match=r"expected a name, a function .* or a NamedMetric, got 3"
    ):
        run(metrics=3)


def test_command_line_accepts_names_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def half(targets, predicted):\n    return 0.5\n")
    words = "run fedavg --on digits-partial --rounds 1 --out r"
    metrics = "--metric f1 --metric mine.py:half:higher"
    done = CliRunner().invoke(app, [*words.split(), *metrics.split()], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "F1" in done.output
    assert re.search(r"half +0.5000 +mine.py:half on the test set", done.output)
    assert '"half": 0.5' in Path("r/metrics.jsonl").read_text().replace('"half":0.5', '"half": 0.5')


def test_warnings_of_the_processes_of_a_comparison_have_no_line_of_source(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def broken(targets, predicted):\n    raise KeyError('broken')\n")
    thalweg.compare(
        ["fedavg"], "gaussian-mixture", seeds=2, rounds=1, metrics=f"{file}:broken", workers=2
    )
    error = capfd.readouterr().err
    assert "UserWarning: round 1: the metric broken raised KeyError: 'broken'." in error
    assert "requested_metrics.py" not in error
    assert "warnings.warn" not in error
