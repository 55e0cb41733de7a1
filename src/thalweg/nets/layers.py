"""The layers of a net. Each layer has two forms: one model, and K stacked models.

One model: images are (B, C, H, W) in ``channels_last`` memory, vectors (B, F), as in PyTorch.

K stacked models: the batch is the last axis. Images are (K, C, H, W, B), vectors (K, F, B). Every
dense layer is then ``weight @ x`` without transposition, flattening is free and keeps PyTorch's
order, and pooling and activations run along whole batches.

``apply_stacked`` is optional: nets with a layer without it train one client at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from thalweg.core.errors import require
from thalweg.nets.net import Shape

if TYPE_CHECKING:
    from torch import Tensor


def check_channels(name: str, shape: Shape, channels: int) -> None:
    """Require images with this number of channels."""
    require(
        len(shape) == 3 and shape[0] == channels,
        f"{name} expects images (channels, height, width) with {channels} channels, "
        f"got shape {shape}.",
    )


class ParameterlessLayer:
    """Common part of layers without parameters."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {}

    @property
    def fan_in(self) -> int:
        return 1

    def multiply_adds(self, shape: Shape) -> int:
        return 0


@dataclass(frozen=True)
class Relu(ParameterlessLayer):
    """max(x, 0)."""

    def out_shape(self, shape: Shape) -> Shape:
        return shape

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return x.relu()

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return x.relu()


@dataclass(frozen=True)
class Flatten(ParameterlessLayer):
    """Flatten an image to a vector in PyTorch's order: channel, row, column."""

    def out_shape(self, shape: Shape) -> Shape:
        return (prod(shape),)

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return x.flatten(1)

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        return x.flatten(1, -2)


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


@dataclass(frozen=True)
class Dense:
    r"""A fully connected layer, :math:`W x + b`.

    >>> Dense("fc", inputs=3, outputs=2).shapes
    {'fc.weight': (2, 3), 'fc.bias': (2,)}
    """

    name: str
    inputs: int
    outputs: int

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {
            f"{self.name}.weight": (self.outputs, self.inputs),
            f"{self.name}.bias": (self.outputs,),
        }

    @property
    def fan_in(self) -> int:
        return self.inputs

    def out_shape(self, shape: Shape) -> Shape:
        require(
            shape == (self.inputs,),
            f"{self.name} expects vectors of {self.inputs} numbers, got shape {shape}.",
        )
        return (self.outputs,)

    def multiply_adds(self, shape: Shape) -> int:
        return self.inputs * self.outputs

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        from torch.nn.functional import linear

        weight, bias = weights
        return linear(x, weight, bias)

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        weight, bias = weights  # (K, O, F), (K, O)
        return bias.unsqueeze(2).baddbmm(weight, x)  # (K, O, F) @ (K, F, B)
