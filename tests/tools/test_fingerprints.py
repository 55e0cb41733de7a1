"""The fingerprint tool reports runs whose results have changed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from thalweg.engine.plan import make_plan

FILE = Path(__file__).parents[2] / "tools" / "fingerprints.py"


@pytest.fixture(scope="module")
def tool() -> Any:
    spec = importlib.util.spec_from_file_location("fingerprints", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fingerprints"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def stub_runs(tool: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace runs by a fingerprint that the test can change."""
    result: dict[str, Any] = {"model": "a1", "losses": [float("nan")], "rows": [{"loss": 1.0}]}
    monkeypatch.setattr(tool, "run_on_engine", lambda case, engine: {**result, "engine": engine})
    monkeypatch.setattr(tool, "run_by_bytes", lambda case: result)
    return result


def test_each_case_is_a_valid_plan(tool: Any) -> None:
    for case in tool.CASES.values():
        make_plan(case.recipe, case.scenario, overrides=case.overrides)


def test_equal_results_give_exit_code_zero(
    tool: Any, stub_runs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "before.json"
    assert tool.main(["--only", "sfedpo", "--out", str(file)]) == 0
    assert list(json.loads(file.read_text())) == [
        "sfedpo/reference",
        "sfedpo/fast",
        "sfedpo/bytes",
    ]
    assert tool.main(["--only", "sfedpo", "--compare", str(file)]) == 0
    assert "all 3 runs are equal" in capsys.readouterr().out


def test_changed_missing_and_failing_runs_give_exit_code_one(
    tool: Any,
    stub_runs: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "before.json"
    tool.main(["--only", "sfedpo/fast", "--out", str(file)])
    assert tool.main(["--only", "is/fast", "--compare", str(file)]) == 1, "not in the file"
    stub_runs["rows"] = [{"loss": 1.5}]
    assert tool.main(["--only", "sfedpo/fast", "--compare", str(file)]) == 1
    assert "sfedpo/fast                  DIFFERENT: rows[0].loss\n" in capsys.readouterr().out
    monkeypatch.setattr(tool, "run_on_engine", lambda case, engine: 1 / 0)
    assert tool.main(["--only", "sfedpo/fast", "--compare", str(file)]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_unknown_case_is_rejected_with_the_names_of_the_cases(tool: Any) -> None:
    with pytest.raises(SystemExit, match="got nothing; the cases are sfedpo, "):
        tool.choose_runs(["nothing"])


def test_small_runs_are_reproducible_and_bytes_give_the_model_of_the_reference(tool: Any) -> None:
    runs = [("robust", "reference"), ("robust", "bytes")]
    (_, reference), (_, by_bytes) = tool.take_fingerprints(runs)
    ((_, again),) = tool.take_fingerprints(runs[:1])
    assert tool.find_differences(reference, again) == []
    assert by_bytes["model"] == reference["model"]
    assert [len(cohort) for cohort in by_bytes["cohorts"]] == reference["cohorts"]
