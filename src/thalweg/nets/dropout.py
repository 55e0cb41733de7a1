"""Dropout: units that are silent in a training step, chosen by each client for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Generator, Tensor

from thalweg.core.errors import require
from thalweg.nets.layers import ParameterlessLayer
from thalweg.nets.net import Shape


@dataclass(frozen=True)
class Dropout(ParameterlessLayer):
    r"""In training, each number is 0 with probability `rate`, and else divided by 1 - rate.

    .. math::  y = x \, \frac{\mathbf 1[u \ge r]}{1 - r}, \qquad u \sim U[0, 1)

    The expectation is the input, which is also what comes out when the model is used
    (Srivastava et al., 2014, with the scaling at training time).

    >>> Dropout(0.5).mask((2, 3), torch.Generator().manual_seed(0)).tolist()
    [[0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
    """

    rate: float = 0.5

    def __post_init__(self) -> None:
        require(0 <= self.rate < 1, f"a dropout rate lies in [0, 1), got {self.rate}.")

    def out_shape(self, shape: Shape) -> Shape:
        return shape

    def multiply_adds(self, shape: Shape) -> int:
        return prod(shape)

    def mask(self, shape: Shape, noise: Generator) -> Tensor:
        """What each number is multiplied by.

        Numbers are drawn one after the other, so that the first samples of a larger batch (B, ...)
        get what they would get in a smaller one. `bernoulli_` does not promise that.
        """
        return (torch.rand(shape, generator=noise) >= self.rate).float() / (1 - self.rate)

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return x

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return x

    def apply_noisy(self, weights: Sequence[Tensor], x: Tensor, noise: Generator) -> Tensor:
        return x * self.mask(tuple(x.shape), noise)

    def apply_stacked_noisy(
        self, weights: Sequence[Tensor], x: Tensor, noise: Sequence[Generator]
    ) -> Tensor:
        alone = (x.shape[-1], *x.shape[1:-1])  # (B, ...) of one model
        masks = torch.stack([self.mask(alone, generator) for generator in noise])
        return x * masks.movedim(1, -1)  # (K, ..., B)


def fork_generators(noise: Generator, count: int) -> list[Generator]:
    """Generators of their own for `count` layers.

    Each call takes `count` numbers from `noise`, however much the layers draw. Without this, a batch
    with padding would shift what the second layer draws, and everything after.
    """
    seeds = torch.randint(2**63 - 1, (count,), generator=noise).tolist()
    return [torch.Generator().manual_seed(seed) for seed in seeds]
