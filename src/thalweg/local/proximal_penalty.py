"""The proximal penalty with a hand-written gradient, which reads a large model fewer times.

A separate module, because it needs torch on import; `proximal` imports it when a loss is computed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def proximal_penalty(params: Tensor, anchor: Tensor, strength: float) -> Tensor:
    r"""Return (K,) half the strength times :math:`\lVert w - a \rVert^2`, for w and a (K, P).

    >>> proximal_penalty(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2), strength=0.2)
    tensor([2.5000])
    """
    penalty: Tensor = _ProximalPenalty.apply(params, anchor, strength)  # type: ignore[no-untyped-call]
    return penalty


class _ProximalPenalty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, params: Tensor, anchor: Tensor, strength: float) -> Tensor:
        offset = params - anchor
        ctx.save_for_backward(offset)
        ctx.strength = strength
        penalty: Tensor = strength / 2 * torch.linalg.vecdot(offset, offset)
        return penalty

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (offset,) = ctx.saved_tensors
        return offset * (ctx.strength * grad).unsqueeze(1), None, None
