"""Penalties on parameters with a hand-written gradient, which read a large model fewer times.

A separate module, because it needs torch on import; objectives import it when a loss is computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from thalweg.local.quadratic import Quadratic


def make_penalty(params: Tensor, values: Tensor, slopes: Tensor, factor: float = 1.0) -> Tensor:
    r"""Return the penalties `values` (K,) with the gradients `factor` times `slopes` (K, P).

    The objective computes both from ``params.detach()``. Here for :math:`w^2 + 2 w` at 3:

    >>> params = torch.tensor([[3.0]], requires_grad=True)
    >>> penalty = make_penalty(params, torch.tensor([15.0]), torch.tensor([[4.0]]), factor=2)
    >>> penalty.item(), torch.autograd.grad(penalty.sum(), params)[0].item()
    (15.0, 8.0)
    """
    penalty: Tensor = _Penalty.apply(params, values, slopes, factor)  # type: ignore[no-untyped-call]
    return penalty


def compute_quadratic(params: Tensor, quadratic: Quadratic) -> Tensor:
    """Return the quadratic penalties (K,) of parameters (K, P).

    Here 1 * 2² / 2 + 3 * 2, with the gradient 2 + 3:

    >>> params = torch.tensor([[3.0]], requires_grad=True)
    >>> one = torch.tensor([[1.0]])
    >>> penalty = compute_quadratic(params, Quadratic(scale=1.0, centre=one, slope=3 * one))
    >>> penalty.item(), torch.autograd.grad(penalty.sum(), params)[0].item()
    (8.0, 5.0)
    """
    scale, curvature, centre, slope = quadratic
    away = params.detach() if centre is None else params.detach() - centre
    if scale == 0 and slope is not None:
        return make_penalty(params, torch.linalg.vecdot(slope, away), slope)
    pull = away if curvature is None else curvature * away
    values = scale / 2 * torch.linalg.vecdot(pull, away)
    if slope is None:
        return make_penalty(params, values, pull, scale)
    values += torch.linalg.vecdot(slope, away)
    return make_penalty(params, values, torch.add(slope, pull, alpha=scale))


class _Penalty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, params: Tensor, values: Tensor, slopes: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(slopes)
        ctx.factor = factor
        return values.view_as(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * (ctx.factor * grad).unsqueeze(1), None, None, None
