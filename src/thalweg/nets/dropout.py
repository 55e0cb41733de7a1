"""Dropout with one random generator per client."""

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
    r"""In training, each value is set to 0 with probability `rate`, else divided by 1 - rate.

    .. math::  y = x \, \frac{\mathbf 1[u \ge r]}{1 - r}, \qquad u \sim U[0, 1)

    The expectation equals the input, which is the output outside training (Srivastava et al., 2014,
    with scaling at training time).

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
        """Factors for all values.

        Numbers are drawn in order, so that the first samples of a larger batch (B, ...) get the
        same factors as in a smaller one. `bernoulli_` does not guarantee this.
        """
        drawn = torch.rand(shape, generator=noise, device=noise.device)
        return (drawn >= self.rate).float() / (1 - self.rate)

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


def fork_generators(
    noise: Generator, count: int, device: torch.device | None = None
) -> list[Generator]:
    """Independent generators for `count` layers on a device (None: the CPU).

    Each call takes `count` numbers from `noise`, however much the layers draw. Otherwise a padded
    batch would shift the draws of all later layers.
    """
    seeds = torch.randint(2**63 - 1, (count,), generator=noise).tolist()
    return [torch.Generator(device or "cpu").manual_seed(seed) for seed in seeds]
