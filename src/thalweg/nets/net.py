"""A net: a pure function of a flat parameter vector.

Only the layers import torch, so that `Net` can be imported without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError, ShapeMismatch
from thalweg.core.types import Floats, Floats32, Ints, ParamSlice

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

Shape = tuple[int, ...]


class Layer(Protocol):
    """Protocol of a layer."""

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Parameters by name, in the order of the flat vector; empty if there are none."""

    @property
    def fan_in(self) -> int:
        """Inputs of one unit; initial parameters are U(-1/sqrt(fan_in), 1/sqrt(fan_in)).

        Not used for a `CustomInitLayer`.
        """

    def out_shape(self, shape: Shape) -> Shape:
        """Output shape for one input of this shape; raises an error for invalid inputs."""

    def multiply_adds(self, shape: Shape) -> int:
        """Number of multiplications for one sample of this shape."""

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        """One model: x is (B, ...)."""


@runtime_checkable
class StackableLayer(Layer, Protocol):
    """A layer that can run K models at once."""

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        """K models: x is (K, ..., B), every weight has a leading axis K."""


@runtime_checkable
class NoisyLayer(StackableLayer, Protocol):
    """A layer that draws random numbers in training; `apply` is the deterministic form.

    Each client has its own generator per layer, from which whole samples (B, *shape) are drawn, so
    that neither other clients of a stack nor padding samples change the draws.
    """

    def apply_noisy(self, weights: Sequence[Tensor], x: Tensor, noise: Generator) -> Tensor:
        """One model in training: x is (B, ...)."""

    def apply_stacked_noisy(
        self, weights: Sequence[Tensor], x: Tensor, noise: Sequence[Generator]
    ) -> Tensor:
        """K models in training: x is (K, ..., B), one generator for each."""


@runtime_checkable
class CustomInitLayer(Layer, Protocol):
    """A layer with its own initialisation, such as a scale that starts at 1."""

    def init_params(self, rng: np.random.Generator, gain: float) -> Iterator[Floats]:
        """Initial parameters, one flat array for each of `shapes`."""


def init_layer_params(
    layers: Iterable[Layer], rng: np.random.Generator, gain: float
) -> Iterator[Floats]:
    """Initial parameters of all layers, flat and in order, one at a time to limit memory."""
    for layer in layers:
        if isinstance(layer, CustomInitLayer):
            yield from layer.init_params(rng, gain)
        else:
            bound = gain / sqrt(layer.fan_in)
            for shape in layer.shapes.values():
                yield rng.uniform(-bound, bound, prod(shape))


@dataclass(frozen=True)
class Net:
    """A sequence of layers. The parameters are one external float32 vector of P numbers.

    The vector contains every layer's weight and then its bias, in PyTorch's order (output, input,
    row, column): the result of ``torch.nn.utils.parameters_to_vector`` for the same net as a
    module. `named_parameters` returns the tensors without copying.

    >>> from thalweg.nets import Mlp
    >>> net = Mlp(hidden=(3,)).build(input_shape=(2,), num_classes=2)
    >>> net.num_params  # 3 x 2 + 3, then 2 x 3 + 2
    17
    >>> params = net.init(np.random.default_rng(0))
    >>> [(name, piece.shape) for name, piece in net.named_parameters(params).items()]
    [('fc1.weight', (3, 2)), ('fc1.bias', (3,)), ('fc2.weight', (2, 3)), ('fc2.bias', (2,))]
    """

    layers: tuple[Layer, ...]
    input_shape: Shape  # (C, H, W), (F,), or (L, V) for L codes out of V
    gain: float = (
        1.0  # factor on PyTorch's range of initial parameters; sqrt(6) gives He initialisation
    )

    def __post_init__(self) -> None:
        _ = self.shapes  # layers reject invalid input shapes

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Shape of one sample before the first layer, between layers, and after the last one."""
        shapes = [self.input_shape]
        for layer in self.layers:
            shapes.append(layer.out_shape(shapes[-1]))
        return tuple(shapes)

    @cached_property
    def sizes(self) -> list[int]:
        """Number of values in each parameter, in flat order."""
        return [prod(shape) for layer in self.layers for shape in layer.shapes.values()]

    @property
    def param_shapes(self) -> list[Shape]:
        """Shape of each parameter, in flat order."""
        return [shape for layer in self.layers for shape in layer.shapes.values()]

    @cached_property
    def num_params(self) -> int:
        return sum(self.sizes)

    @property
    def num_classes(self) -> int:
        return self.shapes[-1][0]

    @cached_property
    def untrained(self) -> Tensor | None:
        """Positions of the vector that optimizers do not change, such as buffers; None: none."""
        return None

    @property
    def num_buffers(self) -> int:
        """Number of values at the end of the vector that a call in training mode updates."""
        return 0

    @property
    def smallest_batch(self) -> int:
        """The least number of samples on which the net can train: 2 with BatchNorm, else 1."""
        return 1

    @cached_property
    def own_positions(self) -> Ints | None:
        """Positions of the vector at which each client keeps its own values; None: none."""
        return None

    @property
    def output_bias(self) -> slice | None:
        """Positions of the biases that the last layer adds to the outputs; None: there are none.

        >>> from thalweg.nets import Mlp
        >>> Mlp(hidden=(3,)).build(input_shape=(2,), num_classes=2).output_bias
        slice(15, 17, None)
        """
        last = list(self.layers[-1].shapes.values())
        if not last or last[-1] != self.shapes[-1]:
            return None
        return slice(self.num_params - prod(last[-1]), self.num_params)

    @cached_property
    def can_stack(self) -> bool:
        """True if `apply_stacked` is available for this net."""
        return all(isinstance(layer, StackableLayer) for layer in self.layers)

    @property
    def trains_features(self) -> bool:
        """True if steps change the features, the input of the last layer; false for a linear net.

        >>> from thalweg.nets import Linear, Mlp
        >>> [spec.build((4,), 3).trains_features for spec in (Linear(), Mlp())]
        [False, True]
        """
        return any(layer.shapes for layer in self.layers[:-1])

    @cached_property
    def is_noisy(self) -> bool:
        """True if training draws random numbers inside the net, as dropout does."""
        return any(isinstance(layer, NoisyLayer) for layer in self.layers)

    def init(self, rng: np.random.Generator, number: int = 0) -> Floats32:
        r"""Initial parameters (P,), with PyTorch's distribution if `gain` is 1.

        .. math::  W, b \sim U(-g/\sqrt{n}, g/\sqrt{n}), \qquad n = \text{inputs of one unit}

        Normalisation scales start at 1, shifts at 0. `number` counts the models of a bank; only
        nets with given initial parameters depend on it.
        """
        params = np.empty(self.num_params, dtype=np.float32)
        first = 0
        for piece in init_layer_params(self.layers, rng, self.gain):
            params[first : first + len(piece)] = piece
            first += len(piece)
        return params

    def named_parameters(self, params: Floats32) -> dict[str, Floats32]:
        """The tensors of a flat vector by name, shaped as in PyTorch; views, not copies."""
        if params.shape != (self.num_params,):
            raise ShapeMismatch(
                f"this net has {self.num_params} parameters, got an array of shape {params.shape}."
            )
        pieces = np.split(params, np.cumsum(self.sizes)[:-1])
        named = (item for layer in self.layers for item in layer.shapes.items())
        return {
            name: piece.reshape(shape) for (name, shape), piece in zip(named, pieces, strict=True)
        }

    def describe_tensors(self) -> str:
        """Return the names and shapes of the tensors in the vector, one per line."""
        named = (item for layer in self.layers for item in layer.shapes.items())
        return "\n".join(f"{name} {'x'.join(map(str, shape)) or 1}" for name, shape in named)

    def saved_tensors(self, params: Floats32) -> dict[str, npt.NDArray[Any]]:
        """The tensors of a file of parameters: those of the vector, and constants of the net."""
        return dict(self.named_parameters(params))

    @property
    def param_slices(self) -> list[ParamSlice]:
        """Position of each named tensor in the flat vector."""
        ends = np.cumsum(self.sizes).tolist()
        names = (name for layer in self.layers for name in layer.shapes)
        return [
            ParamSlice(name, end - size, end)
            for name, size, end in zip(names, self.sizes, ends, strict=True)
        ]

    def apply(self, params: Tensor, x: Tensor, noise: Generator | None = None) -> Tensor:
        """Logits (B, C) of one model; params (P,), x (B, *input_shape), or integers (B, L).

        With `noise` the model is in training mode and draws from this generator.
        """
        _, logits = self._forward(params, x, noise)
        return logits

    def apply_stacked(
        self, params: Tensor, x: Tensor, noise: Sequence[Generator] | None = None
    ) -> Tensor:
        """Logits (K, B, C) of K models, each on its own batch.

        Params (K, P), x (K, B, *input_shape).

        `noise` has one generator per model, or is None as in `apply`; each model draws the same
        numbers as it would alone. Fastest if the batch is the innermost axis of x in memory.
        """
        _, logits = self._forward_stacked(params, x, noise)
        return logits.transpose(1, 2)

    def with_features(
        self, params: Tensor, x: Tensor, noise: Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, C) of one model, as in `apply`, and the input (B, F) of its last layer."""
        self._require_dense_end()
        features, logits = self._forward(params, x, noise)
        return logits, features

    def with_features_stacked(
        self, params: Tensor, x: Tensor, noise: Sequence[Generator] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits (K, B, C) and features (K, B, F) of K models, as in `apply_stacked`."""
        self._require_dense_end()
        features, logits = self._forward_stacked(params, x, noise)
        return logits.transpose(1, 2), features.transpose(1, 2)

    def _require_dense_end(self) -> None:
        from thalweg.nets.layers import Dense

        if not isinstance(self.layers[-1], Dense):
            raise ConfigError(
                "features are the input of the last, fully connected layer; expected a Dense "
                f"layer at the end, got {type(self.layers[-1]).__name__}."
            )

    def _forward_stacked(
        self, params: Tensor, x: Tensor, noise: Sequence[Generator] | None
    ) -> tuple[Tensor, Tensor]:
        """Input (K, ..., B) and output (K, C, B) of the last layer of K models."""
        K = len(params)
        pieces = iter(params.split(self.sizes, dim=1))  # type: ignore[no-untyped-call]
        generators = self._noise_generators(noise, K, x.device)
        before = x = x.movedim(1, -1)  # (K, *input_shape, B)
        for layer in self._stackable:
            before = x
            weights = [next(pieces).view(K, *shape) for shape in layer.shapes.values()]
            if generators is not None and isinstance(layer, NoisyLayer):
                x = layer.apply_stacked_noisy(weights, x, next(generators))
            else:
                x = layer.apply_stacked(weights, x)
        return before, x

    def _forward(self, params: Tensor, x: Tensor, noise: Generator | None) -> tuple[Tensor, Tensor]:
        """Input and output of the last layer of one model."""
        # Splitting once makes the backward pass one concatenation.
        pieces = iter(params.split(self.sizes))  # type: ignore[no-untyped-call]
        generators = self._noise_generators(None if noise is None else [noise], 1, x.device)
        before = x
        for layer in self.layers:
            before = x
            weights = [next(pieces).view(shape) for shape in layer.shapes.values()]
            if generators is not None and isinstance(layer, NoisyLayer):
                x = layer.apply_noisy(weights, x, next(generators)[0])
            else:
                x = layer.apply(weights, x)
        return before, x

    def _noise_generators(
        self, noise: Sequence[Generator] | None, num_models: int, device: torch.device
    ) -> Iterator[tuple[Generator, ...]] | None:
        """One generator per model for each noisy layer; None: no random numbers."""
        if noise is None or not self.is_noisy:
            return None
        if len(noise) != num_models:
            raise ShapeMismatch(
                f"expected one generator for each of {num_models} models, got {len(noise)}."
            )
        from thalweg.nets.dropout import fork_generators

        count = sum(isinstance(layer, NoisyLayer) for layer in self.layers)
        forks = (fork_generators(generator, count, device) for generator in noise)
        return zip(*forks, strict=True)

    @cached_property
    def _stackable(self) -> Sequence[StackableLayer]:
        layers = [layer for layer in self.layers if isinstance(layer, StackableLayer)]
        if len(layers) < len(self.layers):
            missing = {type(layer).__name__ for layer in self.layers} - {
                type(layer).__name__ for layer in layers
            }
            raise TypeError(f"no stacked form of {', '.join(sorted(missing))}; see Net.can_stack.")
        return layers
