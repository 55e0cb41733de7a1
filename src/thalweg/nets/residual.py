"""Residual blocks: the sum of two paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from thalweg.core.errors import require
from thalweg.core.types import Floats
from thalweg.nets.net import NoisyLayer, Shape, StackableLayer, init_layer_params


@dataclass(frozen=True)
class Residual:
    r"""A residual block (He, Zhang, Ren and Sun, 2016): relu(body(x) + shortcut(x)).

    Without layers, the shortcut is the identity. In the flat vector the parameters of the body
    precede those of the shortcut.
    """

    body: tuple[StackableLayer, ...]
    shortcut: tuple[StackableLayer, ...] = ()

    def __post_init__(self) -> None:
        noisy = [type(layer).__name__ for layer in self._layers if isinstance(layer, NoisyLayer)]
        require(
            not noisy,
            f"a residual block cannot contain noisy layers, got {', '.join(noisy)}; put them "
            "before or after the block.",
        )

    @property
    def _layers(self) -> tuple[StackableLayer, ...]:
        return self.body + self.shortcut

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {name: shape for layer in self._layers for name, shape in layer.shapes.items()}

    @property
    def fan_in(self) -> int:
        return 1

    def init_params(self, rng: np.random.Generator, gain: float) -> Iterator[Floats]:
        """Each layer with its own initialisation."""
        return init_layer_params(self._layers, rng, gain)

    def out_shape(self, shape: Shape) -> Shape:
        one, other = _shapes(self.body, shape)[-1], _shapes(self.shortcut, shape)[-1]
        require(
            one == other,
            "both paths of a residual block must have the same output shape, but for an input of "
            f"shape {shape} they have {one} and {other}.",
        )
        return one

    def multiply_adds(self, shape: Shape) -> int:
        return sum(
            layer.multiply_adds(come)
            for way in (self.body, self.shortcut)
            for layer, come in zip(way, _shapes(way, shape), strict=False)
        )

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        pieces = iter(weights)
        body, shortcut = x, x
        for layer in self.body:
            body = layer.apply([next(pieces) for _ in layer.shapes], body)
        for layer in self.shortcut:
            shortcut = layer.apply([next(pieces) for _ in layer.shapes], shortcut)
        return (body + shortcut).relu()

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        pieces = iter(weights)
        body, shortcut = x, x
        for layer in self.body:
            body = layer.apply_stacked([next(pieces) for _ in layer.shapes], body)
        for layer in self.shortcut:
            shortcut = layer.apply_stacked([next(pieces) for _ in layer.shapes], shortcut)
        return (body + shortcut).relu()


def _shapes(layers: Sequence[StackableLayer], shape: Shape) -> list[Shape]:
    """Shape of one sample before each layer, and after the last one."""
    shapes = [shape]
    for layer in layers:
        shapes.append(layer.out_shape(shapes[-1]))
    return shapes
