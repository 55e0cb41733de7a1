"""The protocol of losses, and what engines do with them: decode outputs, compute errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError, require

if TYPE_CHECKING:
    from torch import Tensor


class Loss(Protocol):
    """A function of outputs and targets that returns one number per sample.

    A class attribute ``task`` ("classification" or "regression") declares the task; without it the
    loss is used for both. ``has_single_logit = True``: two classes with one output.
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return losses (...) of outputs (..., C) and targets: (...) labels, (...) or (..., D)."""
        ...


def resolve_loss(
    loss: Loss | None, task: str, num_classes: int, name: str, other_task: str = ""
) -> Loss:
    """Return the loss of a data set: the given one if it fits the task, or the default.

    `name` is that of the data set, for messages. `other_task` is the task that the same data may
    have with another setting of `data.task`; empty: there is none.

    >>> resolve_loss(None, "classification", 10, "digits"), resolve_loss(None, "regression", 0, "")
    (CrossEntropy(), MeanSquaredError())
    """
    from thalweg.losses.classes import CrossEntropy
    from thalweg.losses.numbers import MeanSquaredError

    if loss is None:
        return CrossEntropy() if task == "classification" else MeanSquaredError()
    expected = getattr(loss, "task", task)
    targets = f"{num_classes} classes" if task == "classification" else "numbers"
    suitable = "cross_entropy" if task == "classification" else "mse, mae, huber or quantile"
    require(
        expected == task,
        f"loss={type(loss).__name__} is for {expected}, but the targets of {name} are {targets} "
        f"({task}). Use loss={suitable}"
        + (f", or set data.task={expected}." if expected == other_task else "."),
    )
    require(
        not has_single_logit(loss) or num_classes == 2,
        f"loss={type(loss).__name__} needs two classes, but {name} has {num_classes}. "
        "Use loss=cross_entropy.",
    )
    return loss


def has_single_logit(loss: Loss) -> bool:
    return bool(getattr(loss, "has_single_logit", False))


def count_outputs(loss: Loss, num_outputs: int) -> int:
    """Return the number of outputs of a net: that of the data set, or one for a single logit."""
    return 1 if has_single_logit(loss) else num_outputs


def decode_outputs(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return predictions like the targets: labels (n,), or numbers (n,) or (n, D)."""
    if targets.is_floating_point():
        return outputs.reshape(targets.shape)
    if has_single_logit(loss):
        return (outputs[:, 0] > 0).long()
    return outputs.argmax(1)


def get_log_probabilities(loss: Loss, outputs: Tensor, is_regression: bool) -> Tensor:
    """Return log probabilities of the classes (n, C); in a regression the outputs (n, D)."""
    from torch.nn.functional import logsigmoid

    if is_regression:
        return outputs
    if has_single_logit(loss):
        import torch

        return torch.cat([logsigmoid(-outputs), logsigmoid(outputs)], 1)
    return outputs.log_softmax(1)


def compute_output_errors(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return (n, C) the gradient of each sample's loss in its outputs.

    For the cross-entropy these are the probabilities minus the one-hot labels.
    """
    import torch

    from thalweg.losses.classes import CrossEntropy

    if isinstance(loss, CrossEntropy):
        errors = outputs.softmax(1)
        errors[torch.arange(len(targets), device=targets.device), targets] -= 1
        return errors
    with torch.inference_mode(False), torch.enable_grad():
        at = outputs.clone().requires_grad_()
        return torch.autograd.grad(loss(at, targets.clone()).sum(), at)[0]


def check_finite_losses(name: str, losses: npt.NDArray[Any]) -> None:
    """Reject losses of the first batch that are not finite."""
    finite = np.isfinite(losses)
    first = int(np.argmin(finite)) if len(losses) else 0
    require(
        bool(finite.all()),
        f"loss={name} is {losses[first] if len(losses) else 0} for sample {first} of the first "
        "batch; expected finite numbers. Check logarithms and divisions by zero, and the scale of "
        "the targets.",
    )


def check_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> None:
    """Try a loss on one batch: outputs (n, C) of a first model, and targets.

    Raises `ConfigError` if it raises, or if its values are not one finite, differentiable number
    per sample that depends on this sample only.
    """
    import torch

    name = getattr(loss, "path", type(loss).__name__)
    at = outputs.detach().clone().requires_grad_()
    try:
        losses = loss(at, targets)
        alone = [loss(at[i : i + 1], targets[i : i + 1]) for i in range(len(at))]
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"loss={name} raised {type(error).__name__}: {error}. It was called with outputs "
            f"{tuple(outputs.shape)} and targets {tuple(targets.shape)} of {targets.dtype}; "
            "expected one loss per sample."
        ) from error
    require(
        isinstance(losses, torch.Tensor) and losses.shape == outputs.shape[:-1],
        f"loss={name}: expected one loss per sample, of shape {tuple(outputs.shape[:-1])}, got "
        f"shape {tuple(getattr(losses, 'shape', ()))}. Do not average over the samples.",
    )
    check_finite_losses(name, losses.detach().numpy())
    first, first_alone = float(losses.detach()[0]), float(alone[0].detach())
    require(
        torch.allclose(losses, torch.cat(alone), rtol=1e-3, atol=1e-5),
        f"loss={name} of a sample depends on the other samples of the batch: it is {first:.6g} for "
        f"the first sample, and {first_alone:.6g} for the same sample alone. Compute each loss "
        "from one row of outputs and its target, because batches of several clients are computed "
        "together.",
    )
    require(
        losses.requires_grad,
        f"loss={name} is not differentiable in the outputs (no gradient); compute it with "
        "operations of PyTorch, without detach, item or numpy.",
    )
