"""Exported programs give the predictions of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import thalweg
from thalweg.core.errors import ConfigError, RunError
from thalweg.data import Dataset
from thalweg.engine import export
from thalweg.engine.result import Result

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch.export


@pytest.fixture(scope="module")
def result() -> Result:
    x = np.random.default_rng(0).normal(5, 3, size=(40, 2))
    y = np.where(x.sum(1) > 10, "high", "low")
    data = Dataset.from_arrays(x, y, client=np.arange(40) % 2)
    return thalweg.run("fedavg", data, model="mlp", rounds=1)


def test_program_contains_scaling_and_takes_any_number_of_rows(
    result: Result, tmp_path: Path
) -> None:
    file = tmp_path / "model.pt2"
    assert export.export_model(result, file) == "float64 (n, 2), numbers that are not scaled"
    extra = {"preprocessing.json": ""}
    program = torch.export.load(file, extra_files=extra).module()
    rows = np.random.default_rng(1).normal(5, 3, size=(7, 2))
    with torch.no_grad():
        found = program(torch.from_numpy(rows)).numpy()
    assert found == pytest.approx(result.predict_proba(rows), abs=1e-5)
    assert json.loads(extra["preprocessing.json"])["class_names"] == ["high", "low"]


def test_mixture_is_one_program(result: Result, tmp_path: Path) -> None:
    served = result.served._replace(
        models=np.stack([result.model, 2 * result.model]),
        shares=np.array([1.0, 0.0]),
        mixtures=np.array([[0.25, 0.75], [1.0, 0.0]]),
    )
    mixed = replace(result, served=served)
    rows = np.array([[1.0, 2.0], [9.0, 9.0]])
    with torch.no_grad():
        found = export.ExportedModel(mixed, 0)(torch.from_numpy(rows)).numpy()
    assert found == pytest.approx(mixed.predict_proba(rows, 0), abs=1e-5)
    with pytest.raises(ConfigError, match="a mixture of 2 models"):
        export.export_model(mixed, tmp_path / "model.safetensors", 0)


def test_images_are_normalised_in_the_program() -> None:
    result = thalweg.run("fedavg", "digits-partial", rounds=1)
    images = np.random.default_rng(0).integers(256, size=(4, 8, 8, 1)).astype(np.uint8)
    with torch.no_grad():
        found = export.ExportedModel(result)(torch.from_numpy(images)).numpy()
    assert found == pytest.approx(result.predict_proba(images), abs=1e-5)


def test_weights_are_the_state_dict_of_the_module(result: Result, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    export.export_model(result, file)
    found = load_file(file)
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in result.module().state_dict().items()
    }


def test_unknown_format_and_missing_package_are_rejected(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"ends with .pt2, .onnx, .safetensors"):
        export.export_model(result, tmp_path / "model.h5")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'thalweg\[onnx\]'"):
        export.export_model(result, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_different_program_is_not_written(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Result, "score_samples", lambda *_: np.zeros((5, 2), dtype=np.float32))
    with pytest.raises(RunError, match=r"differs from Result.predict by up to"):
        export.export_model(result, tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())
