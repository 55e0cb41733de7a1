"""Metrics that a scenario requests: by name or as functions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score
from typer.testing import CliRunner

import thalweg
from thalweg.cli.main import app
from thalweg.core.errors import ConfigError
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
    assert NAMED_METRICS["auroc"].compute(targets, both) == roc_auc_score(targets, probabilities)
    expected = f1_score(targets, guesses, average="macro")
    assert NAMED_METRICS["f1"].compute(targets, guesses) == expected


def test_failing_metric_is_nan_and_does_not_end_the_run() -> None:
    with pytest.warns(UserWarning, match=r"the metric broken has no value: it raised KeyError"):
        result = run(metrics=broken)
    assert math.isnan(result.final["broken"])


def test_unsuitable_metrics_are_rejected_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"metrics=mae is for regression.*accuracy"):
        run(metrics="mae")
    with pytest.raises(ConfigError, match="unknown metric 'f2'"):
        run(metrics=["f2"])
    with pytest.raises(ConfigError, match="expected a name or a function, got 3"):
        run(metrics=3)


def test_command_line_accepts_names_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def half(targets, predicted):\n    return 0.5\n")
    words = "run fedavg --on digits-partial --rounds 1 --metric f1 --metric mine.py:half --out r"
    done = CliRunner().invoke(app, words.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "F1" in done.output
    assert '"half": 0.5' in Path("r/metrics.jsonl").read_text().replace('"half":0.5', '"half": 0.5')
