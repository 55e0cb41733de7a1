"""AlexNet for small images."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from thalweg.core.errors import require
from thalweg.nets.builders import build_convolutional, check_dropout, check_image_shape, check_units
from thalweg.nets.net import Layer, Net, Shape

POOLED = (1, 2, 5)  # convolutions followed by pooling, as in the original


@dataclass(frozen=True)
class AlexNet:
    """Five convolutions and three fully connected layers (Krizhevsky, Sutskever, Hinton, 2012).

    The original reads 224x224 images. For 32x32 images all convolutions are 3x3 with stride 1 and
    all pooling is 2x2, so that 256 maps of 4x4 reach the fully connected layers, which have the
    original widths. Channels are those of the single-processor version (Krizhevsky, 2014). There is
    no local response normalisation. The parameters take 136.8 MiB:

    >>> AlexNet().build((3, 32, 32), 10).num_params
    35855178
    """

    channels: tuple[int, int, int, int, int] = (64, 192, 384, 256, 256)
    hidden: int = 4096  # units of each of the two hidden fully connected layers
    dropout: float = 0.5  # of these two layers; 0: none
    gain: float = 1.0
    """Factor on PyTorch's range of initial parameters; 2.45 gives He initialisation for ReLU."""

    def __post_init__(self) -> None:
        require(
            len(self.channels) == 5 and min(self.channels) >= 1,
            f"AlexNet needs five numbers of channels, each at least 1, got {self.channels}.",
        )
        require(self.hidden >= 1, f"AlexNet needs hidden >= 1, got {self.hidden}.")
        check_units("AlexNet", *self.channels, self.hidden)
        require(self.gain > 0, f"AlexNet needs a gain above 0, got {self.gain}.")
        check_dropout("AlexNet", self.dropout)

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        inputs, _ = check_image_shape("alexnet", input_shape, at_least=8)
        from thalweg.nets.conv import Conv
        from thalweg.nets.conv_pool import ConvPool
        from thalweg.nets.layers import Relu

        blocks: list[Layer] = []
        for i, (come, go) in enumerate(pairwise((inputs, *self.channels)), start=1):
            if i in POOLED:
                blocks.append(ConvPool(f"conv{i}", come, go, kernel=3, padding=1))
            else:
                blocks += [Conv(f"conv{i}", come, go, kernel=3, padding=1), Relu()]
        hidden = (self.hidden, self.hidden)
        return build_convolutional(
            input_shape, tuple(blocks), hidden, num_classes, self.dropout, self.gain
        )
