"""Pooling without anything else. Stacked, the batch is a third axis that the window does not touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from thalweg.core.errors import require
from thalweg.nets.layers import ParameterlessLayer
from thalweg.nets.net import Shape


@dataclass(frozen=True)
class MaxPool(ParameterlessLayer):
    """The largest value of each window. What does not fill a window at the edge is dropped.

    >>> MaxPool(kernel=3, stride=2).out_shape((8, 32, 32))
    (8, 15, 15)
    """

    kernel: int = 2
    stride: int = 2

    def out_shape(self, shape: Shape) -> Shape:
        return pool_shape(shape, self.kernel, self.stride)

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return functional.max_pool2d(x, self.kernel, self.stride)

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return functional.max_pool3d(
            x, (self.kernel, self.kernel, 1), (self.stride, self.stride, 1)
        )


@dataclass(frozen=True)
class AvgPool(ParameterlessLayer):
    """The mean of each window. What does not fill a window at the edge is dropped."""

    kernel: int = 2
    stride: int = 2

    def out_shape(self, shape: Shape) -> Shape:
        return pool_shape(shape, self.kernel, self.stride)

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return functional.avg_pool2d(x, self.kernel, self.stride)

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return functional.avg_pool3d(
            x, (self.kernel, self.kernel, 1), (self.stride, self.stride, 1)
        )


@dataclass(frozen=True)
class GlobalAvgPool(ParameterlessLayer):
    """The mean of each channel over the whole image: (C, H, W) becomes (C,)."""

    def out_shape(self, shape: Shape) -> Shape:
        require(len(shape) == 3, f"pooling expects images (C, H, W), got shape {shape}.")
        return shape[:1]

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return x.mean((2, 3))

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return x.mean((2, 3))


def pool_shape(shape: Shape, kernel: int, stride: int) -> Shape:
    """Shape of an image after windows of kernel x kernel, `stride` pixels apart."""
    require(
        len(shape) == 3 and min(shape[1:]) >= kernel,
        f"pooling expects images (C, H, W) of at least {kernel}x{kernel} pixels, got shape {shape}.",
    )
    channels, height, width = shape
    return (channels, (height - kernel) // stride + 1, (width - kernel) // stride + 1)
