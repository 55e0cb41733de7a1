"""Losses of classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CrossEntropy:
    r"""Cross-entropy: minus the log-probability of the right class.

    .. math::  -\log \mathrm{softmax}(z)_y

    Symbols: z logits, y class.

    >>> import torch
    >>> CrossEntropy()(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()  # log 4
    [1.3862943649291992, 1.3862943649291992]
    """

    task: ClassVar[str] = "classification"

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        from torch.nn.functional import cross_entropy

        logits = outputs.transpose(1, 2) if outputs.ndim == 3 else outputs  # classes come second
        return cross_entropy(logits, targets, reduction="none")


@dataclass(frozen=True)
class BinaryCrossEntropy:
    r"""Cross-entropy of two classes with one logit, that of class 1. The net has one output.

    .. math::  -y \log \sigma(z) - (1 - y) \log(1 - \sigma(z))

    Symbols: z logit, :math:`\sigma` the logistic function, y class 0 or 1.

    >>> import torch
    >>> losses = BinaryCrossEntropy()(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1]))
    >>> [round(loss, 4) for loss in losses.tolist()]  # log 2, log(1 + exp(-2))
    [0.6931, 0.1269]
    """

    task: ClassVar[str] = "classification"
    has_single_logit: ClassVar[bool] = True

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        from torch.nn.functional import binary_cross_entropy_with_logits

        logits = outputs[..., 0]
        return binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
