"""A convolution layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from thalweg.core.errors import require
from thalweg.nets.layers import check_channels
from thalweg.nets.net import Shape


@dataclass(frozen=True)
class Conv:
    """A convolution with a square kernel; `ConvPool` is faster if 2x2 pooling follows.

    >>> Conv("conv", inputs=3, outputs=8, kernel=3, stride=2, padding=1).out_shape((3, 32, 32))
    (8, 16, 16)
    """

    name: str
    inputs: int  # channels
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    bias: bool = True

    @property
    def shapes(self) -> Mapping[str, Shape]:
        weight = {f"{self.name}.weight": (self.outputs, self.inputs, self.kernel, self.kernel)}
        return {**weight, f"{self.name}.bias": (self.outputs,)} if self.bias else weight

    @property
    def fan_in(self) -> int:
        return self.inputs * self.kernel**2

    def out_shape(self, shape: Shape) -> Shape:
        check_channels(self.name, shape, self.inputs)
        require(
            min(shape[1:]) + 2 * self.padding >= self.kernel,
            f"{self.name}: an image of {shape[1]}x{shape[2]} pixels is too small for a "
            f"{self.kernel}x{self.kernel} convolution (padding {self.padding}).",
        )
        height, width = (
            (side + 2 * self.padding - self.kernel) // self.stride + 1 for side in shape[1:]
        )
        return (self.outputs, height, width)

    def multiply_adds(self, shape: Shape) -> int:
        _, height, width = self.out_shape(shape)
        return height * width * self.outputs * self.fan_in

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        bias = weights[1] if self.bias else None
        return functional.conv2d(x, weights[0], bias, self.stride, self.padding)

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        """One convolution with as many groups as models."""
        weight = weights[0].flatten(0, 1)  # (K O, I, k, k)
        bias = weights[1].flatten() if self.bias else None
        K = len(x)
        by_sample = x.movedim(-1, 0).flatten(1, 2)  # (B, K I, H, W)
        y = functional.conv2d(by_sample, weight, bias, self.stride, self.padding, groups=K)
        return y.reshape(len(y), K, self.outputs, *y.shape[2:]).movedim(0, -1)  # (K, O, H', W', B)
