"""Convolution, 2x2 max-pooling and ReLU in one layer.

For one model, bias and ReLU are applied after pooling, which gives the same result with a quarter
of the work. K stacked models use the algorithm of `nets.stacked_conv_pool`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.core.errors import require
from thalweg.nets.layers import check_channels
from thalweg.nets.net import Shape

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ConvPool:
    """Convolution with stride 1, 2x2 max-pooling, ReLU. An odd last row or column is dropped.

    >>> block = ConvPool("conv1", inputs=1, outputs=6, kernel=5, padding=2)
    >>> block.shapes
    {'conv1.weight': (6, 1, 5, 5), 'conv1.bias': (6,)}
    >>> block.out_shape((1, 28, 28))
    (6, 14, 14)
    """

    name: str
    inputs: int  # channels
    outputs: int
    kernel: int
    padding: int = 0

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {
            f"{self.name}.weight": (self.outputs, self.inputs, self.kernel, self.kernel),
            f"{self.name}.bias": (self.outputs,),
        }

    @property
    def fan_in(self) -> int:
        return self.inputs * self.kernel**2

    def out_shape(self, shape: Shape) -> Shape:
        check_channels(self.name, shape, self.inputs)
        height, width = (self._pool_side(side) for side in shape[1:])
        require(
            min(height, width) >= 1,
            f"{self.name}: an image of {shape[1]}x{shape[2]} pixels is too small for a "
            f"{self.kernel}x{self.kernel} convolution (padding {self.padding}) and 2x2 pooling.",
        )
        return (self.outputs, height, width)

    def multiply_adds(self, shape: Shape) -> int:
        _, height, width = self.out_shape(shape)
        return 4 * height * width * self.outputs * self.fan_in

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        from torch.nn.functional import conv2d, max_pool2d

        weight, bias = weights
        y = max_pool2d(conv2d(x, weight, padding=self.padding), 2)
        return (y + bias.view(-1, 1, 1)).relu()

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        from thalweg.nets.stacked_conv_pool import StackedConvPool

        weight, bias = weights  # (K, O, I, k, k), (K, O)
        y: Tensor = StackedConvPool.apply(x, weight, bias, self.padding)  # type: ignore[no-untyped-call]
        return y

    def _pool_side(self, side: int) -> int:
        return (side + 2 * self.padding - self.kernel + 1) // 2
