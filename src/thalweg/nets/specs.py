"""The nets by name: small configurations that become a `Net` once the data are known.

Nothing here imports torch before `build` is called, so the table can be shown at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Protocol

from thalweg.core.errors import require
from thalweg.nets.net import Layer, Net, Shape


class NetSpec(Protocol):
    """A net before it knows its data."""

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        """The net for samples of this shape, (C, H, W) or (F,), and this many classes."""


@dataclass(frozen=True)
class Linear:
    """Multinomial logistic regression on the raw inputs."""

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        return _dense(input_shape, (), num_classes)


@dataclass(frozen=True)
class Mlp:
    """Fully connected layers with ReLU between them."""

    hidden: tuple[int, ...] = (200,)  # units of each hidden layer

    def __post_init__(self) -> None:
        require(
            len(self.hidden) >= 1 and min(self.hidden) >= 1,
            f"Mlp needs at least one hidden layer of at least one unit, got hidden={self.hidden}. "
            "Without hidden layers it is the net 'linear'.",
        )

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        return _dense(input_shape, self.hidden, num_classes)


@dataclass(frozen=True)
class LeNet5:
    """LeCun's convolutional net of 1998: 6 and 16 maps of 5x5, then 120, 84 and the classes.

    Images of 28 pixels are padded to 32 as in the paper; images of 32 pixels or more are not padded.
    Below 12 pixels there is nothing left for the second convolution, so it is padded too: an 8x8 digit
    becomes 6 maps of 4x4, then 16 of 2x2.

    Differs from the paper, like everybody's: max-pooling for trainable averages, ReLU for tanh, all maps
    connected, a linear last layer.

    >>> LeNet5().build((1, 28, 28), 10).num_params
    61706
    """

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        channels, side = _image("lenet5", input_shape, at_least=4)
        from thalweg.nets.conv_pool import ConvPool

        first = ConvPool("conv1", channels, 6, kernel=5, padding=0 if side >= 32 else 2)
        second = ConvPool("conv2", 6, 16, kernel=5, padding=0 if side >= 12 else 2)
        return _convolutional(input_shape, (first, second), (120, 84), num_classes)


@dataclass(frozen=True)
class Cnn:
    """Three 3x3 convolutions, each followed by pooling, and one hidden layer: for 32x32 colour images.

    >>> Cnn().build((3, 32, 32), 10).num_params
    156074
    """

    channels: tuple[int, int, int] = (16, 32, 64)
    hidden: int = 128  # units between the convolutions and the classes

    def __post_init__(self) -> None:
        require(
            len(self.channels) == 3 and min(self.channels) >= 1,
            f"Cnn needs three numbers of channels, each at least 1, got channels={self.channels}.",
        )
        require(self.hidden >= 1, f"Cnn needs hidden >= 1, got {self.hidden}.")

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        inputs, _ = _image("cnn", input_shape, at_least=8)
        from thalweg.nets.conv_pool import ConvPool

        blocks = tuple(
            ConvPool(f"conv{i}", come, go, kernel=3, padding=1)
            for i, (come, go) in enumerate(pairwise((inputs, *self.channels)), start=1)
        )
        return _convolutional(input_shape, blocks, (self.hidden,), num_classes)


NETS: dict[str, type[NetSpec]] = {
    "linear": Linear,
    "mlp": Mlp,
    "lenet5": LeNet5,
    "cnn": Cnn,
}


def _image(net: str, input_shape: Shape, at_least: int) -> tuple[int, int]:
    """Channels and shorter side of an image, or a refusal."""
    require(
        len(input_shape) == 3,
        f"the net {net!r} needs images (channels, height, width), but samples have shape {input_shape}. "
        "For plain features use 'mlp' or 'linear'.",
    )
    channels, height, width = input_shape
    require(
        min(height, width) >= at_least,
        f"the net {net!r} needs images of at least {at_least}x{at_least} pixels, "
        f"got {height}x{width}. For smaller ones use 'mlp' or 'linear'.",
    )
    return channels, min(height, width)


def _dense(input_shape: Shape, hidden: tuple[int, ...], num_classes: int) -> Net:
    require(
        len(input_shape) >= 1 and min(input_shape) >= 1,
        f"a net needs at least one input, but samples have shape {input_shape}.",
    )
    from thalweg.nets.layers import Flatten

    first: tuple[Layer, ...] = (Flatten(),) if len(input_shape) > 1 else ()
    return Net(first + _head(prod(input_shape), hidden, num_classes), tuple(input_shape))


def _convolutional(
    input_shape: Shape, blocks: tuple[Layer, ...], hidden: tuple[int, ...], num_classes: int
) -> Net:
    from thalweg.nets.layers import Flatten

    features = (*blocks, Flatten())
    (width,) = Net(features, tuple(input_shape)).shapes[-1]
    return Net(features + _head(width, hidden, num_classes), tuple(input_shape))


def _head(inputs: int, hidden: tuple[int, ...], num_classes: int) -> tuple[Layer, ...]:
    """fc1, ReLU, fc2, ReLU, ..., down to the logits."""
    require(num_classes >= 2, f"a classifier needs at least 2 classes, got {num_classes}.")
    from thalweg.nets.layers import Dense, Relu

    layers: list[Layer] = []
    widths = (inputs, *hidden, num_classes)
    for i, (come, go) in enumerate(pairwise(widths), start=1):
        layers += [Dense(f"fc{i}", come, go), Relu()]
    return tuple(layers[:-1])  # no ReLU after the logits
