"""Predictions of trained models: samples to outputs, in batches and in evaluation mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Floats, Floats32
from thalweg.data.preprocessing import Preprocessing
from thalweg.evaluation.mixtures import mix_scores
from thalweg.losses import Loss, get_log_probabilities, resolve_loss
from thalweg.nets import Net
from thalweg.scenarios import Scenario

if TYPE_CHECKING:
    from torch import Tensor, nn

BATCH = 1024  # samples per call of a net


def find_loss(scenario: Scenario, rules: Preprocessing) -> Loss:
    """Return the loss of a run; it determines the form of the outputs."""
    num_classes = rules.num_outputs if rules.task == "classification" else 0
    return resolve_loss(scenario.loss, rules.task, num_classes, scenario.name)


def is_image(rules: Preprocessing) -> bool:
    return rules.dtype == "uint8" and len(rules.shape) == 3


def get_input_shape(rules: Preprocessing) -> tuple[int, ...]:
    """Return the shape of one sample for a net, as `Dataset.input_shape`.

    >>> get_input_shape(Preprocessing("classification", (8, 9, 3), "uint8"))
    (3, 8, 9)
    """
    if is_image(rules):
        height, width, channels = rules.shape
        return (channels, height, width)
    return (*rules.shape, rules.num_codes) if rules.num_codes else rules.shape


def make_inputs(rules: Preprocessing, samples: npt.NDArray[Any]) -> Tensor:
    """Return samples (n, *shape) as the net receives them: images are normalised."""
    import torch

    if rules.num_codes:
        if samples.size and samples.max() >= rules.num_codes:
            raise DataError(
                f"expected codes from 0 to {rules.num_codes - 1}, got {samples.max()}. Use the "
                "same encoding as in the training data."
            )
        return torch.from_numpy(samples.astype(np.int64))
    x = torch.from_numpy(samples.astype(np.float32))
    if not is_image(rules):
        return x
    mean, std = np.array(rules.mean), np.array(rules.std)
    scale = torch.tensor(1 / (255 * std), dtype=torch.float32)
    shift = torch.tensor(-mean / std, dtype=torch.float32)
    return x.mul_(scale).add_(shift).permute(0, 3, 1, 2)


def compute_scores(
    net: Net,
    models: Floats32,
    mixture: Floats,
    loss: Loss,
    rules: Preprocessing,
    samples: npt.NDArray[Any],
) -> Floats32:
    """Return log-probabilities (n, C) of a mixture of models; in a regression numbers (n, D).

    Shapes: models (M, P), mixture (M,) sums to one, samples (n, *shape).
    """
    import torch

    is_regression = rules.task == "regression"
    used = np.flatnonzero(mixture)
    parts: list[Floats32] = [np.empty((0, rules.num_outputs), dtype=np.float32)]
    with torch.no_grad():
        weights = [torch.tensor(models[model]) for model in used]
        for first in range(0, len(samples), BATCH):
            x = make_inputs(rules, samples[first : first + BATCH])
            outputs = [net.apply(each, x) for each in weights]
            scores = np.stack(
                [get_log_probabilities(loss, each, is_regression).numpy() for each in outputs]
            )
            if is_regression:
                mixed = np.tensordot(mixture[used], scores, axes=1).astype(np.float32)
            else:
                mixed = mix_scores(scores, mixture[used])
            parts.append(mixed)
    return np.concatenate(parts)


def make_trained_module(net: Net, model: Floats32) -> nn.Module:
    """Return a new module with the parameters (P,), in evaluation mode."""
    import torch

    from thalweg.nets.module_net import ModuleNet, copy_module
    from thalweg.nets.net_as_module import NetAsModule

    if not isinstance(net, ModuleNet):
        return NetAsModule(net, model).eval()
    module = copy_module(net.layer.module, net.spec.name)
    saved = {name: torch.tensor(value) for name, value in net.saved_tensors(model).items()}
    module.load_state_dict({**module.state_dict(), **saved})
    return module.eval()
