"""Exported programs give the predictions of the run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import thalweg
from thalweg.core.errors import ConfigError, RunError
from thalweg.core.mixtures import Mixtures
from thalweg.data import Dataset, Preprocessing
from thalweg.engine import export
from thalweg.engine.prediction import get_input_shape
from thalweg.engine.result import Result
from thalweg.federation import ServedModels
from thalweg.nets import NETS, build_net
from thalweg.nets.module import Module

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
        mixtures=Mixtures.from_rows(np.array([[0.25, 0.75], [1.0, 0.0]])),
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


IMAGES = Preprocessing(
    "classification", (28, 28, 1), "uint8", mean=(0.3,), std=(0.4,), num_outputs=3
)
COLOURS = replace(IMAGES, shape=(32, 32, 3), mean=(0.3,) * 3, std=(0.4,) * 3)
TEXTS = Preprocessing("classification", (12,), "uint8", num_codes=40, num_outputs=3)
WINDOWS = Preprocessing("classification", (9, 2), num_outputs=3)


class Recurrent(nn.Module):
    """Windows (B, T, C) through a GRU or an LSTM."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells, self.last = kind(2, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.cells(x)[0][:, -1])
        return found


class Convolutions(nn.Module):
    """Images with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.body(x))
        return found


NETS_TO_EXPORT: dict[str, tuple[Any, Preprocessing]] = {
    "lenet5": ("lenet5", IMAGES),
    "cnn": ("cnn", COLOURS),
    "ham-cnn": ("ham-cnn", replace(COLOURS, shape=(28, 28, 3))),
    "resnet10": ("resnet10", COLOURS),
    "char-rnn": ("char-rnn", TEXTS),
    "fast-text": ("fast-text", TEXTS),
    "gru": (lambda: Recurrent(nn.GRU), WINDOWS),
    "lstm": (lambda: Recurrent(nn.LSTM), WINDOWS),
    "convolutions": (Convolutions, IMAGES),
}


def make_untrained(result: Result, name: str) -> Result:
    """Return a result with another net, whose weights are the initial ones."""
    spec, rules = NETS_TO_EXPORT[name]
    spec = NETS[spec]() if isinstance(spec, str) else Module(f"python:{name}", source=spec)
    net = build_net(spec, get_input_shape(rules), 3, rules.num_codes)
    model = net.init(np.random.default_rng(0))
    served = ServedModels(model[None], np.ones(1))
    return replace(result, net=net, model=model, served=served, preprocessing=rules)


SLOW = ("cnn", "ham-cnn", "resnet10", "lstm")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NETS_TO_EXPORT],
)
def test_all_kinds_of_nets_can_be_exported(result: Result, tmp_path: Path, name: str) -> None:
    other = make_untrained(result, name)
    export.export_model(other, tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2").module()
    for number in (1, 7):
        rows = export.make_rows(other, number)
        raw = rows.numpy().astype(other.preprocessing.dtype)
        with torch.no_grad():
            assert program(rows).numpy() == pytest.approx(other.predict_proba(raw), abs=1e-5)
    export.export_model(other, tmp_path / "model.safetensors")
    assert load_file(tmp_path / "model.safetensors").keys() == other.module().state_dict().keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet5", "fast-text", "gru"])
def test_onnx_programs_give_the_predictions(result: Result, tmp_path: Path, name: str) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    from onnxruntime import InferenceSession

    other = make_untrained(result, name)
    export.export_model(other, tmp_path / "model.onnx")
    session = InferenceSession(tmp_path / "model.onnx")
    for number in (1, 7):
        rows = export.make_rows(other, number).numpy()
        (found,) = session.run(None, {session.get_inputs()[0].name: rows})
        raw = rows.astype(other.preprocessing.dtype)
        assert found == pytest.approx(other.predict_proba(raw), abs=1e-5)
