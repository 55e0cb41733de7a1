"""Export a trained model: a program for other software, or a file of its weights."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thalweg.core.errors import ConfigError, RunError
from thalweg.data.features import Scale, apply_scale
from thalweg.data.preprocessing import Preprocessing
from thalweg.engine.prediction import find_loss, is_image, make_trained_module
from thalweg.engine.result import Result
from thalweg.losses.base import has_single_logit

KINDS = (".pt2", ".onnx", ".safetensors")
EXAMPLE_ROWS, CHECK_ROWS = 3, 5
TOLERANCE = 1e-4


class ExportedModel(nn.Module):
    """Rows to class probabilities (n, C), or to numbers (n, D): preprocessing, models, mixture.

    `forward` takes numbers before scaling, float64 (n, ...), with one column for each input (a text
    column has one for each category); images, uint8 (n, H, W, C); or codes, int64 (n, L).
    """

    def __init__(self, result: Result, client: int | str | None = None) -> None:
        super().__init__()
        rules, mixture = result.preprocessing, result.get_mixture(client)
        used = np.flatnonzero(mixture)
        self.models = nn.ModuleList(
            make_trained_module(result.net, result.served.models[model]) for model in used
        )
        self.weights = [float(mixture[model]) for model in used]
        self.is_regression = rules.task == "regression"
        self.has_single_logit = has_single_logit(find_loss(result.plan.scenario, rules))
        self.is_image, self.is_sequence = is_image(rules), rules.num_codes > 0
        centre, width = np.zeros(rules.shape), np.ones(rules.shape)
        if isinstance(rules.scale, Scale):
            centre, width = (np.reshape(each, rules.shape) for each in rules.scale)
        elif self.is_image:
            centre, width = 255 * np.array(rules.mean), 255 * np.array(rules.std)
        self.register_buffer("centre", torch.tensor(centre, dtype=torch.float64))
        self.register_buffer("width", torch.tensor(width, dtype=torch.float64))
        self.eval()

    def forward(self, rows: Tensor) -> Tensor:
        x = rows
        if not self.is_sequence:
            x = ((rows.double() - self.get_buffer("centre")) / self.get_buffer("width")).float()
        if self.is_image:
            x = x.permute(0, 3, 1, 2).contiguous()
        parts = [
            weight * self._decode(model(x))
            for model, weight in zip(self.models, self.weights, strict=True)
        ]
        return sum(parts[1:], parts[0])

    def _decode(self, found: Any) -> Tensor:
        outputs: Tensor = found if isinstance(found, Tensor) else found.logits
        outputs = outputs[:, None] if outputs.ndim == 1 else outputs
        if self.is_regression:
            return outputs
        if self.has_single_logit:
            share = outputs.sigmoid()
            return torch.cat([1 - share, share], 1)
        return outputs.softmax(1)


def export_model(result: Result, file: Path, client: int | str | None = None) -> str:
    """Write the model of a client, or that of most clients; return the input in words.

    The suffix of the file is the format: ``.pt2`` (torch.export), ``.onnx``, or ``.safetensors``
    (the state dict of `Result.module`). The preprocessing is stored with the model. Programs are
    checked against `Result.predict` before they are written.
    """
    kind = file.suffix.lower()
    if kind not in KINDS:
        raise ConfigError(f"--to {file}: expected a name that ends with {', '.join(KINDS)}.")
    about = json.dumps(result.preprocessing.to_dict())
    unfinished = file.with_name(f".part-{file.name}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if kind == ".safetensors":
            from safetensors.numpy import save_file

            tensors = result.net.saved_tensors(result.get_model(client))
            plain = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
            save_file(plain, unfinished, metadata={"preprocessing": about})
        else:
            model, example = ExportedModel(result, client), make_rows(result, EXAMPLE_ROWS)
            program = _trace(model, example)
            _check(result, program, client)
            if kind == ".pt2":
                torch.export.save(program, unfinished, extra_files={"preprocessing.json": about})
            else:
                _write_onnx(program, unfinished, about)
        os.replace(unfinished, file)
    except OSError as error:
        raise RunError(f"--to {file} cannot be written: {error}.") from error
    finally:
        unfinished.unlink(missing_ok=True)
    if kind == ".safetensors":
        return "weights only; rows must be preprocessed as in preprocessing.json"
    return describe_input(result.preprocessing)


def describe_input(rules: Preprocessing) -> str:
    """Return what an exported program expects, in words."""
    shape = ", ".join(map(str, ("n", *rules.shape)))
    if rules.num_codes:
        return f"int64 ({shape}), codes from 0 to {rules.num_codes - 1}"
    if is_image(rules):
        return f"uint8 ({shape}), images from 0 to 255"
    names = [name for column in rules.columns for name in column.inputs]
    kind = "already scaled" if rules.scale == "moving" else "not scaled"
    of = f": {', '.join(names)}" if names else ""
    return f"float64 ({shape}), numbers that are {kind}{of}"


def make_rows(result: Result, number: int) -> Tensor:
    """Return random rows of the form that an exported program takes."""
    rules, rng = result.preprocessing, np.random.default_rng(number)
    size = (number, *rules.shape)
    if rules.num_codes:
        return torch.from_numpy(rng.integers(rules.num_codes, size=size))
    if is_image(rules):
        return torch.from_numpy(rng.integers(256, size=size).astype(np.uint8))
    rows = rng.normal(size=size)
    if isinstance(rules.scale, Scale):
        centre, width = (np.reshape(each, rules.shape) for each in rules.scale)
        rows = centre + width * rows
    return torch.from_numpy(rows)


def _trace(model: ExportedModel, example: Tensor) -> torch.export.ExportedProgram:
    shapes = {"rows": {0: torch.export.Dim("n")}}
    try:
        with torch.no_grad():
            return torch.export.export(model, (example,), dynamic_shapes=shapes)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"torch.export cannot export the model ({type(error).__name__}: {reason}); expected a "
            "forward without control flow that depends on values or on the number of rows. Export "
            "its weights: --to model.safetensors."
        ) from error


def _check(result: Result, program: torch.export.ExportedProgram, client: int | str | None) -> None:
    """Compare a program with `Result.predict` on random rows."""
    rules, rows = result.preprocessing, make_rows(result, CHECK_ROWS)
    samples = rows.numpy()
    if isinstance(rules.scale, Scale):
        flat = samples.reshape(len(samples), -1)
        samples = apply_scale(flat, rules.scale).reshape(samples.shape).astype(np.float32)
    expected = result.score_samples(samples, result.get_mixture(client))
    expected = expected if rules.task == "regression" else np.exp(expected)
    with torch.no_grad():
        actual = program.module()(rows).numpy()
    if not np.allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE):
        largest = float(np.abs(actual - expected).max())
        raise RunError(
            f"the exported program differs from Result.predict by up to {largest:.3g}; expected at "
            f"most {TOLERANCE:g}. Export its weights: --to model.safetensors."
        )


def _write_onnx(program: torch.export.ExportedProgram, file: Path, about: str) -> None:
    missing = [each for each in ("onnx", "onnxscript") if importlib.util.find_spec(each) is None]
    if missing:
        raise ConfigError(
            f"ONNX needs packages that are not installed ({' and '.join(missing)}): pip install "
            "'thalweg[onnx]'. --to model.pt2 needs no further package."
        )
    found = torch.onnx.export(program, dynamo=True, verbose=False)
    assert found is not None
    found.model.metadata_props["preprocessing"] = about
    found.save(file)
