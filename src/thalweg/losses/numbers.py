"""Losses of regression. With several outputs the loss of a sample is the mean over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from thalweg.core.config import check_ranges

if TYPE_CHECKING:
    from torch import Tensor


def compute_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return (..., D) outputs minus targets; targets are (..., D), or (...) with one output."""
    return outputs - (targets if targets.ndim == outputs.ndim else targets[..., None])


@dataclass(frozen=True)
class MeanSquaredError:
    r"""Squared error :math:`(z - y)^2`. Its minimum is the conditional mean.

    >>> import torch
    >>> MeanSquaredError()(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 1.0])).tolist()
    [1.0, 9.0]
    >>> MeanSquaredError()(torch.tensor([[1.0, 4.0]]), torch.tensor([[2.0, 1.0]])).tolist()
    [5.0]
    """

    task: ClassVar[str] = "regression"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return compute_errors(outputs, targets).square().mean(-1)


@dataclass(frozen=True)
class MeanAbsoluteError:
    """Absolute error :math:`|z - y|`. Its minimum is the conditional median.

    >>> import torch
    >>> MeanAbsoluteError()(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 1.0])).tolist()
    [1.0, 3.0]
    """

    task: ClassVar[str] = "regression"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return compute_errors(outputs, targets).abs().mean(-1)


@dataclass(frozen=True)
class Huber:
    r"""Huber loss: squared for small errors, linear for large ones, so that outliers count less.

    .. math::  e^2 / 2 \text{ if } |e| \le \delta, \text{ else } \delta (|e| - \delta / 2)

    Symbols: e error (output minus target), :math:`\delta` -> delta.

    >>> import torch
    >>> Huber(delta=2.0)(torch.tensor([[1.0], [5.0]]), torch.tensor([0.0, 0.0])).tolist()
    [0.5, 8.0]
    """

    task: ClassVar[str] = "regression"

    delta: float = 1.0
    """Errors up to this size are squared, in the unit of the targets."""

    def __post_init__(self) -> None:
        check_ranges(self, delta="(0, inf)")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        errors = compute_errors(outputs, targets).abs()
        small = errors.clamp_max(self.delta)
        return (small * (errors - small / 2)).mean(-1)


@dataclass(frozen=True)
class Quantile:
    r"""Quantile (pinball) loss. Its minimum is the conditional q-quantile.

    .. math::  \max(q (y - z), (q - 1) (y - z))

    Symbols: y target, z output, q -> q.

    Too low by 2 costs 0.9 * 2, too high by 2 costs 0.1 * 2:

    >>> import torch
    >>> losses = Quantile(q=0.9)(torch.tensor([[1.0], [5.0]]), torch.tensor([3.0, 3.0]))
    >>> [round(loss, 4) for loss in losses.tolist()]
    [1.8, 0.2]
    """

    task: ClassVar[str] = "regression"

    q: float = 0.5

    def __post_init__(self) -> None:
        check_ranges(self, q="(0, 1)")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        import torch

        missing = -compute_errors(outputs, targets)
        return torch.maximum(self.q * missing, (self.q - 1) * missing).mean(-1)
