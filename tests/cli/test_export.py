"""``thalweg export``"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from safetensors.numpy import load_file

import thalweg as package
from thalweg.data import Dataset

Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    x = np.random.default_rng(0).normal(5, 3, size=(40, 2))
    data = Dataset.from_arrays(x, np.where(x.sum(1) > 10, "high", "low"), client=[0, 1] * 20)
    folder = tmp_path / "trained"
    package.run("fedavg", data, model="linear", rounds=1, out=folder)
    return folder


@pytest.mark.filterwarnings("ignore")  # of torch.export
def test_input_and_output_of_a_program_are_printed(
    thalweg: Command, run_folder: Path, tmp_path: Path
) -> None:
    done = thalweg("export", str(run_folder), "--to", "model.pt2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "model.pt2\n"
        "input           float64 (n, 2), numbers that are not scaled\n"
        "output          probabilities of the classes high, low\n"
    )
    assert (tmp_path / "model.pt2").is_file()


def test_weights_are_those_of_the_run(thalweg: Command, run_folder: Path, tmp_path: Path) -> None:
    done = thalweg("export", str(run_folder), "--to", "model.safetensors")
    assert done.returncode == 0, done.stderr
    assert "weights only" in done.stdout
    found, trained = load_file(tmp_path / "model.safetensors"), run_folder / "model.safetensors"
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in load_file(trained).items()
    }


def test_unknown_format_is_rejected(thalweg: Command, run_folder: Path) -> None:
    done = thalweg("export", str(run_folder), "--to", "model.h5")
    assert done.returncode == 2
    assert "expected a name that ends with .pt2, .onnx, .safetensors" in done.stderr
