"""Any Python function as a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thalweg.core.config import get_function_path, load_function
from thalweg.core.errors import ConfigError
from thalweg.core.registry import local_object

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LossFunction:
    """A function ``f(outputs, targets)`` of the user, which returns one loss per sample.

    The function receives tensors of n samples: outputs (n, C) and targets. The targets are class
    labels (n,) in a classification, and numbers (n, D), like the outputs, in a regression. It
    returns the losses (n,), in a regression also (n, D), which are averaged over D. It must be
    differentiable in the outputs. Give the function itself in Python, or
    ``path/to/file.py:function`` or ``package.module:function``.
    """

    path: str = local_object()
    """Where the function is defined: file.py:function or package.module:function."""

    def __post_init__(self) -> None:
        if not hasattr(self, "_function"):
            object.__setattr__(self, "_function", load_function(self.path, "loss"))

    @classmethod
    def from_function(cls, function: Callable[..., Any]) -> LossFunction:
        """Return the loss of a function that is already in this process."""
        loss = object.__new__(cls)
        object.__setattr__(loss, "_function", function)
        object.__setattr__(loss, "path", get_function_path(function))
        return loss

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        import torch

        shape, is_regression = outputs.shape[:-1], targets.is_floating_point()
        flat = outputs.reshape(-1, outputs.shape[-1])
        flat_targets = targets.reshape(flat.shape if is_regression else flat.shape[:1])
        losses = self._function(flat, flat_targets)  # type: ignore[attr-defined]
        if is_regression and isinstance(losses, torch.Tensor) and losses.shape == flat.shape:
            losses = losses.mean(-1)
        if not isinstance(losses, torch.Tensor) or losses.shape != flat.shape[:1]:
            raise ConfigError(
                f"loss={self.path}: expected a tensor with one loss per sample, of shape "
                f"({len(flat)},), got {_describe(losses)}. Do not average over the samples "
                '(reduction="none" in torch.nn.functional).'
            )
        return losses.reshape(shape)


def wrap_function(value: Any) -> Any:
    """Return a function, or the path of one, as a `LossFunction`; anything else unchanged."""
    if isinstance(value, str) and ":" in value and not isinstance(_peek(value), type):
        return LossFunction(value)
    is_component = hasattr(type(value), "__dataclass_fields__") or isinstance(value, type)
    if callable(value) and not is_component:
        return LossFunction.from_function(value)
    return value


def _peek(path: str) -> Any:
    from thalweg.core.config import load_object

    return load_object(path)


def _describe(losses: Any) -> str:
    shape = getattr(losses, "shape", None)
    if shape is None:
        return f"{type(losses).__name__} {losses!r}"[:80]
    return f"shape {tuple(shape)}"
