"""Residual nets with 10, 18 and 34 layers for small images, with group normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from thalweg.core.errors import require
from thalweg.nets.builders import build_head, check_image_shape, check_projection, check_units
from thalweg.nets.net import Layer, Net, Shape

if TYPE_CHECKING:
    from thalweg.nets.residual import Residual


@dataclass(frozen=True)
class _ResNet:
    """A stem, four stages of basic blocks, global average pooling, one fully connected layer."""

    name: ClassVar[str]
    blocks: ClassVar[tuple[int, int, int, int]]  # basic blocks of each stage

    width: int = 64  # channels of the first stage; each stage doubles them
    groups: int = 32  # groups of channels that are normalised together
    projection: int | None = None
    """Size of a projection head before the last layer, whose output are the features.

    None: no head.
    """

    def __post_init__(self) -> None:
        width, groups = self.width, self.groups
        require(
            width >= 1 and groups >= 1 and width % groups == 0,
            f"a residual net needs a width that its groups divide, got width={width}, "
            f"groups={groups}.",
        )
        check_units("a residual net", width)
        check_projection("a residual net", self.projection)

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        from thalweg.nets.conv import Conv
        from thalweg.nets.layers import GlobalAvgPool, Relu
        from thalweg.nets.norm import GroupNorm

        inputs, _ = check_image_shape(self.name, input_shape, at_least=8)
        layers: list[Layer] = [
            Conv("stem.conv", inputs, self.width, kernel=3, padding=1, bias=False),
            GroupNorm("stem.norm", self.width, self.groups),
            Relu(),
        ]
        come = self.width
        for stage, count in enumerate(self.blocks):
            go = self.width * 2**stage
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                name = f"stage{stage + 1}.{number + 1}"
                layers.append(_basic_block(name, come, go, stride, self.groups))
                come = go
        last = build_head(come, (), num_classes, projection=self.projection)
        return Net((*layers, GlobalAvgPool(), *last), tuple(input_shape))


@dataclass(frozen=True)
class ResNet10(_ResNet):
    """One basic block in each of four stages (He, Zhang, Ren and Sun, 2016), for 32x32 images.

    The stem is one 3x3 convolution without pooling. Normalisation is over groups of channels
    instead of batches: see docs/decisions/0007-group-norm.md.

    >>> ResNet10().build((3, 32, 32), 10).num_params
    4903242
    """

    name = "resnet10"
    blocks = (1, 1, 1, 1)


@dataclass(frozen=True)
class ResNet18(_ResNet):
    """Two basic blocks in each stage; otherwise as `ResNet10`.

    >>> ResNet18().build((3, 32, 32), 10).num_params
    11173962
    """

    name = "resnet18"
    blocks = (2, 2, 2, 2)


@dataclass(frozen=True)
class ResNet34(_ResNet):
    """Three, four, six and three basic blocks; otherwise as `ResNet10`.

    >>> ResNet34().build((3, 32, 32), 10).num_params
    21282122
    """

    name = "resnet34"
    blocks = (3, 4, 6, 3)


def _basic_block(name: str, come: int, go: int, stride: int, groups: int) -> Residual:
    """Two 3x3 convolutions; the shortcut is a 1x1 convolution where the shape changes."""
    from thalweg.nets.conv import Conv
    from thalweg.nets.layers import Relu
    from thalweg.nets.norm import GroupNorm
    from thalweg.nets.residual import Residual

    body = (
        Conv(f"{name}.conv1", come, go, kernel=3, stride=stride, padding=1, bias=False),
        GroupNorm(f"{name}.norm1", go, groups),
        Relu(),
        Conv(f"{name}.conv2", go, go, kernel=3, padding=1, bias=False),
        GroupNorm(f"{name}.norm2", go, groups),
    )
    if stride == 1 and come == go:
        return Residual(body)
    shortcut = (
        Conv(f"{name}.shortcut.conv", come, go, kernel=1, stride=stride, bias=False),
        GroupNorm(f"{name}.shortcut.norm", go, groups),
    )
    return Residual(body, shortcut)
