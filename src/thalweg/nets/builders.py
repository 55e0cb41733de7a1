"""Functions that net specifications share. torch is imported only when a net is built."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Protocol

from thalweg.core.config import UPPER_BOUNDS
from thalweg.core.errors import require
from thalweg.nets.net import Layer, Net, Shape


class NetSpec(Protocol):
    """Specification of a net, independent of the data."""

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        """Build the net for samples of this shape and number of classes.

        (C, H, W) are images, (F,) features, (L, V) sequences of L codes out of V.
        """


def check_image_shape(net: str, input_shape: Shape, at_least: int) -> tuple[int, int]:
    """Channels and shorter side of an image; raises an error for other shapes."""
    require(
        len(input_shape) == 3,
        f"the net {net!r} needs images (channels, height, width), but samples have shape "
        f"{input_shape}. For plain features use 'mlp' or 'linear', for sequences of codes "
        "'fast-text' or 'char-rnn'.",
    )
    channels, height, width = input_shape
    require(
        min(height, width) >= at_least,
        f"the net {net!r} needs images of at least {at_least}x{at_least} pixels, "
        f"got {height}x{width}. For smaller ones use 'mlp' or 'linear'.",
    )
    return channels, min(height, width)


def build_dense(
    input_shape: Shape, hidden: tuple[int, ...], num_classes: int, projection: int | None = None
) -> Net:
    require(
        len(input_shape) >= 1 and min(input_shape) >= 1,
        f"a net needs at least one input, but samples have shape {input_shape}.",
    )
    require(
        len(input_shape) != 2,
        f"fully connected nets need numeric features, but samples have shape {input_shape}: "
        "sequences of codes. Use 'fast-text' or 'char-rnn' for these.",
    )
    from thalweg.nets.layers import Flatten

    first: tuple[Layer, ...] = (Flatten(),) if len(input_shape) > 1 else ()
    last = build_head(prod(input_shape), hidden, num_classes, projection=projection)
    return Net(first + last, tuple(input_shape))


def build_convolutional(
    input_shape: Shape,
    blocks: tuple[Layer, ...],
    hidden: tuple[int, ...],
    num_classes: int,
    dropout: float = 0.0,
    gain: float = 1.0,
    projection: int | None = None,
) -> Net:
    from thalweg.nets.layers import Flatten

    features = (*blocks, Flatten())
    (width,) = Net(features, tuple(input_shape)).shapes[-1]
    last = build_head(width, hidden, num_classes, dropout, projection)
    return Net(features + last, tuple(input_shape), gain)


def build_head(
    inputs: int,
    hidden: tuple[int, ...],
    num_classes: int,
    dropout: float = 0.0,
    projection: int | None = None,
) -> tuple[Layer, ...]:
    """Layers fc1, ReLU, optional dropout, fc2, ReLU, ..., logits.

    With `projection`, the projection head of MOON (Li, He and Song, 2021) precedes the last layer:
    a layer of the width of its input, ReLU, and a layer with `projection` outputs, which are the
    features.
    """
    require(num_classes >= 1, f"a net needs at least one output, got {num_classes}.")
    from thalweg.nets.layers import Dense, Relu

    after: tuple[Layer, ...] = (Relu(),)
    if dropout > 0:
        from thalweg.nets.dropout import Dropout

        after = (Relu(), Dropout(dropout))
    layers: list[Layer] = []
    widths = (inputs, *hidden)
    for i, (come, go) in enumerate(pairwise(widths), start=1):
        layers += [Dense(f"fc{i}", come, go), *after]
    width = widths[-1]
    if projection is not None:
        layers += [Dense("projection1", width, width), Relu()]
        layers += [Dense("projection2", width, projection)]
        width = projection
    return (*layers, Dense(f"fc{len(widths)}", width, num_classes))


def check_dropout(net: str, rate: float) -> None:
    require(0 <= rate < 1, f"{net} needs a dropout rate in [0, 1), got {rate}.")


def check_projection(net: str, projection: int | None) -> None:
    require(
        projection is None or projection >= 1,
        f"{net} needs projection >= 1 or none, got {projection}.",
    )
    check_units(net, projection)


def check_units(net: str, *widths: int | None) -> None:
    """Reject layers with more units than any useful net has."""
    most = UPPER_BOUNDS["UNITS"]
    for width in widths:
        require(
            width is None or width <= most,
            f"{net}: a layer has at most {most:,} units or channels, got {width}.",
        )
