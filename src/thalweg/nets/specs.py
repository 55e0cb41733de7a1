"""Specifications of the small nets; `build` makes a `Net` for the shape of the data.

torch is imported only by `build`, so the table can be shown quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from thalweg.core.errors import require
from thalweg.nets.builders import (
    build_convolutional,
    build_dense,
    check_dropout,
    check_image_shape,
    check_projection,
    check_units,
)
from thalweg.nets.net import Layer, Net, Shape


@dataclass(frozen=True)
class Linear:
    """Multinomial logistic regression on the raw inputs."""

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        return build_dense(input_shape, (), num_classes)


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers with ReLU between them."""

    hidden: tuple[int, ...] = (200,)  # units of each hidden layer
    projection: int | None = None
    """Size of a projection head before the last layer, whose output are the features.

    None: no head.
    """

    def __post_init__(self) -> None:
        require(
            len(self.hidden) >= 1 and min(self.hidden) >= 1,
            f"Mlp needs at least one hidden layer of at least one unit, got hidden={self.hidden}. "
            "The net without hidden layers is 'linear'.",
        )
        check_units("Mlp", *self.hidden)
        check_projection("Mlp", self.projection)

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        return build_dense(input_shape, self.hidden, num_classes, self.projection)


@dataclass(frozen=True)
class LeNet5:
    """LeCun's convolutional net of 1998: 6 and 16 maps of 5x5, then 120, 84 and the classes.

    Images of 28 pixels are padded to 32 as in the paper; images of 32 pixels or more are not
    padded. Below 12 pixels nothing would be left for the second convolution, so it is padded too:
    an 8x8 digit becomes 6 maps of 4x4, then 16 of 2x2.

    Differences from the paper, as usual today: max-pooling instead of trainable averages, ReLU
    instead of tanh, all maps connected, a linear last layer.

    >>> LeNet5().build((1, 28, 28), 10).num_params
    61706
    """

    projection: int | None = None
    """Size of a projection head before the last layer, whose output are the features.

    None: no head.
    """

    def __post_init__(self) -> None:
        check_projection("LeNet5", self.projection)

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        channels, side = check_image_shape("lenet5", input_shape, at_least=4)
        from thalweg.nets.conv_pool import ConvPool

        first = ConvPool("conv1", channels, 6, kernel=5, padding=0 if side >= 32 else 2)
        second = ConvPool("conv2", 6, 16, kernel=5, padding=0 if side >= 12 else 2)
        blocks = (first, second)
        return build_convolutional(
            input_shape, blocks, (120, 84), num_classes, projection=self.projection
        )


@dataclass(frozen=True)
class Cnn:
    """Three 3x3 convolutions with pooling and one hidden layer, for 32x32 colour images.

    >>> Cnn().build((3, 32, 32), 10).num_params
    156074
    """

    channels: tuple[int, int, int] = (16, 32, 64)
    hidden: int = 128  # units between the convolutions and the classes
    projection: int | None = None
    """Size of a projection head before the last layer, whose output are the features.

    None: no head.
    """

    def __post_init__(self) -> None:
        check_widths("Cnn", self.channels, self.hidden, count=3)
        check_projection("Cnn", self.projection)

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        blocks = _conv_pools("cnn", input_shape, self.channels)
        return build_convolutional(
            input_shape, blocks, (self.hidden,), num_classes, projection=self.projection
        )


@dataclass(frozen=True)
class Cnn5x5:
    """Two 5x5 convolutions with pooling and one wide hidden layer.

    The net of Marfoq et al. (2023) for CIFAR-10 and CIFAR-100. Images below 16 pixels are padded,
    because nothing would be left for the second convolution.

    >>> Cnn5x5().build((3, 32, 32), 10).num_params
    3353034
    """

    channels: tuple[int, int] = (32, 64)
    hidden: int = 2048  # units between the convolutions and the classes
    projection: int | None = None
    """Size of a projection head before the last layer, whose output are the features.

    None: no head.
    """

    def __post_init__(self) -> None:
        check_widths("Cnn5x5", self.channels, self.hidden, count=2)
        check_projection("Cnn5x5", self.projection)

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        inputs, side = check_image_shape("cnn-5x5", input_shape, at_least=4)
        from thalweg.nets.conv_pool import ConvPool

        blocks = tuple(
            ConvPool(f"conv{i}", come, go, kernel=5, padding=0 if side >= 16 else 2)
            for i, (come, go) in enumerate(pairwise((inputs, *self.channels)), start=1)
        )
        return build_convolutional(
            input_shape, blocks, (self.hidden,), num_classes, projection=self.projection
        )


@dataclass(frozen=True)
class HamCnn:
    """Three 3x3 convolutions with pooling, one hidden layer, dropout: for 28x28 skin lesions.

    The papers that use HAM10000 say "3 convolutions, 2 fully connected layers, dropout" without
    widths.

    >>> HamCnn().build((3, 28, 28), 7).num_params
    241735
    """

    channels: tuple[int, int, int] = (32, 64, 128)
    hidden: int = 128  # units between the convolutions and the classes
    dropout: float = 0.5  # share of the hidden units that is dropped in a training step

    def __post_init__(self) -> None:
        check_widths("HamCnn", self.channels, self.hidden, count=3)
        check_dropout("HamCnn", self.dropout)

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        blocks = _conv_pools("ham-cnn", input_shape, self.channels)
        return build_convolutional(input_shape, blocks, (self.hidden,), num_classes, self.dropout)


def check_widths(net: str, channels: tuple[int, ...], hidden: int, count: int) -> None:
    require(
        len(channels) == count and min(channels) >= 1,
        f"{net} needs {count} numbers of channels, each at least 1, got channels={channels}.",
    )
    require(hidden >= 1, f"{net} needs hidden >= 1, got {hidden}.")
    check_units(net, *channels, hidden)


def _conv_pools(net: str, input_shape: Shape, channels: tuple[int, ...]) -> tuple[Layer, ...]:
    """3x3 convolutions, each followed by 2x2 pooling."""
    inputs, _ = check_image_shape(net, input_shape, at_least=8)
    from thalweg.nets.conv_pool import ConvPool

    return tuple(
        ConvPool(f"conv{i}", come, go, kernel=3, padding=1)
        for i, (come, go) in enumerate(pairwise((inputs, *channels)), start=1)
    )
