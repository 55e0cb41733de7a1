"""Normalisation within one sample; see docs/decisions/0007-group-norm.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from torch import Tensor
from torch.nn import functional

from thalweg.core.errors import require
from thalweg.core.types import Floats
from thalweg.nets.net import Shape


@dataclass(frozen=True)
class GroupNorm:
    r"""Group normalisation (Wu and He, 2018): each group of channels gets mean 0 and variance 1.

    .. math::  y_c = w_c \, \frac{x_c - \mu_g}{\sqrt{\sigma_g^2 + \varepsilon}} + b_c

    Mean and (biased) variance are those of one sample over the channels of a group and all pixels,
    in training and in evaluation. w starts at 1, b at 0.

    >>> GroupNorm("norm", channels=8, groups=2).shapes
    {'norm.weight': (8,), 'norm.bias': (8,)}
    """

    name: str
    channels: int
    groups: int
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        require(
            self.groups >= 1 and self.channels % self.groups == 0,
            f"{self.name}: {self.channels} channels cannot be split into {self.groups} groups.",
        )

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {f"{self.name}.weight": (self.channels,), f"{self.name}.bias": (self.channels,)}

    @property
    def fan_in(self) -> int:
        return 1

    def init_params(self, rng: np.random.Generator, gain: float) -> Iterator[Floats]:
        """Constant initial values; no random numbers are drawn."""
        yield np.ones(self.channels)
        yield np.zeros(self.channels)

    def out_shape(self, shape: Shape) -> Shape:
        require(
            len(shape) >= 1 and shape[0] == self.channels,
            f"{self.name} expects {self.channels} channels, got shape {shape}.",
        )
        return shape

    def multiply_adds(self, shape: Shape) -> int:
        return 2 * prod(shape)  # a square for the variance, a product with the scale

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        weight, bias = weights
        return functional.group_norm(x, self.groups, weight, bias, self.epsilon)

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        grouped = x.reshape(len(x), self.groups, -1, *x.shape[2:])  # (K, G, C / G, ..., B)
        over = tuple(range(2, grouped.ndim - 1))
        centred = grouped - grouped.mean(over, keepdim=True)
        variance = centred.square().mean(over, keepdim=True)
        normal = (centred * (variance + self.epsilon).rsqrt()).flatten(1, 2)
        each = (*weights[0].shape, *(1 for _ in x.shape[2:]))  # (K, C, 1, ..., 1)
        return normal * weights[0].view(each) + weights[1].view(each)
