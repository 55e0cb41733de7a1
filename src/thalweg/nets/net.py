"""A net: a pure function of a flat parameter vector.

Only the layers import torch, so that a `Net` may be named where nothing is computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from thalweg.core.errors import ShapeMismatch
from thalweg.core.types import Floats32

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]


class Layer(Protocol):
    """What a net asks of a layer. Any object of this shape will do."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Its parameters by name, in the order of the flat vector; empty if it has none."""

    @property
    def fan_in(self) -> int:
        """Inputs of one unit; parameters start as U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""

    def out_shape(self, shape: Shape) -> Shape:
        """Shape of one output for an input of this shape; refuses inputs that do not fit."""

    def multiply_adds(self, shape: Shape) -> int:
        """Multiplications for one sample of this shape."""

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        """One model: x is (B, ...)."""


@runtime_checkable
class StackableLayer(Layer, Protocol):
    """A layer that can also run K models at once."""

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        """K models: x is (K, ..., B), every weight has a leading axis K."""


@dataclass(frozen=True)
class Net:
    """Layers in a row. All parameters live outside, in one float32 vector of P numbers.

    The vector is every layer's weight and then its bias, each in PyTorch's own order (output, input,
    row, column), one after the other: what ``torch.nn.utils.parameters_to_vector`` makes of the same
    net written as a module. `named_parameters` gives the pieces back, without copying.

    >>> from thalweg.nets import Mlp
    >>> net = Mlp(hidden=(3,)).build(input_shape=(2,), num_classes=2)
    >>> net.num_params  # 3 x 2 + 3, then 2 x 3 + 2
    17
    >>> params = net.init(np.random.default_rng(0))
    >>> [(name, piece.shape) for name, piece in net.named_parameters(params).items()]
    [('fc1.weight', (3, 2)), ('fc1.bias', (3,)), ('fc2.weight', (2, 3)), ('fc2.bias', (2,))]
    """

    layers: tuple[Layer, ...]
    input_shape: Shape  # (C, H, W) or (F,)

    def __post_init__(self) -> None:
        _ = self.shapes  # layers refuse inputs that do not fit

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Shape of one sample before the first layer, between layers, and after the last."""
        shapes = [self.input_shape]
        for layer in self.layers:
            shapes.append(layer.out_shape(shapes[-1]))
        return tuple(shapes)

    @cached_property
    def sizes(self) -> list[int]:
        """Numbers in each parameter, in flat order."""
        return [prod(shape) for layer in self.layers for shape in layer.shapes.values()]

    @cached_property
    def num_params(self) -> int:
        return sum(self.sizes)

    @property
    def num_classes(self) -> int:
        return self.shapes[-1][0]

    @cached_property
    def can_stack(self) -> bool:
        """Whether `apply_stacked` exists for this net."""
        return all(isinstance(layer, StackableLayer) for layer in self.layers)

    def init(self, rng: np.random.Generator) -> Floats32:
        r"""Fresh parameters (P,), by the law PyTorch starts its modules with.

        .. math::  W, b \sim U(-1/\sqrt{n}, 1/\sqrt{n}), \qquad n = \text{inputs of one unit}
        """
        pieces = [
            rng.uniform(-1 / sqrt(layer.fan_in), 1 / sqrt(layer.fan_in), prod(shape))
            for layer in self.layers
            for shape in layer.shapes.values()
        ]
        return np.concatenate(pieces).astype(np.float32)

    def named_parameters(self, params: Floats32) -> dict[str, Floats32]:
        """The pieces of a flat vector by name, shaped as in PyTorch; views, not copies."""
        if params.shape != (self.num_params,):
            raise ShapeMismatch(
                f"this net has {self.num_params} parameters, got an array of shape {params.shape}."
            )
        pieces = np.split(params, np.cumsum(self.sizes)[:-1])
        named = (item for layer in self.layers for item in layer.shapes.items())
        return {
            name: piece.reshape(shape) for (name, shape), piece in zip(named, pieces, strict=True)
        }

    @cached_property
    def is_noisy(self) -> bool:
        """Does a layer draw random numbers while it is trained?"""
        return False

    def with_features(self, params: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, C) of one model, and what goes into its last layer, (B, F)."""
        pieces = iter(params.split(self.sizes))  # type: ignore[no-untyped-call]
        features = x
        for layer in self.layers:
            features = x
            weights = [next(pieces).view(shape) for shape in layer.shapes.values()]
            x = layer.apply(weights, x)
        return x, features

    def apply(self, params: Tensor, x: Tensor) -> Tensor:
        """Logits (B, C) of one model; params (P,), x (B, *input_shape)."""
        # Splitting once makes the way back one concatenation.
        pieces = iter(params.split(self.sizes))  # type: ignore[no-untyped-call]
        for layer in self.layers:
            weights = [next(pieces).view(shape) for shape in layer.shapes.values()]
            x = layer.apply(weights, x)
        return x

    def apply_stacked(self, params: Tensor, x: Tensor) -> Tensor:
        """Logits (K, B, C) of K models, each on its own batch; params (K, P), x (K, B, *input_shape).

        Fastest if x lies in memory with the batch innermost, as `engine.gather` makes it.
        """
        K = len(params)
        pieces = iter(params.split(self.sizes, dim=1))  # type: ignore[no-untyped-call]
        x = x.movedim(1, -1)  # (K, *input_shape, B)
        for layer in self._stackable:
            weights = [next(pieces).view(K, *shape) for shape in layer.shapes.values()]
            x = layer.apply_stacked(weights, x)
        return x.transpose(1, 2)

    @cached_property
    def _stackable(self) -> Sequence[StackableLayer]:
        layers = [layer for layer in self.layers if isinstance(layer, StackableLayer)]
        if len(layers) < len(self.layers):
            missing = {type(layer).__name__ for layer in self.layers} - {
                type(layer).__name__ for layer in layers
            }
            raise TypeError(f"no stacked form of {', '.join(sorted(missing))}; see Net.can_stack.")
        return layers
