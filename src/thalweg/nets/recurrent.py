"""Layers for sequences of codes.

They have no stacked form: such nets train one client at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from thalweg.core.errors import require
from thalweg.core.types import Floats
from thalweg.nets.net import Shape

# Options of PyTorch's functions for one layer in one direction.
ONE_LAYER: dict[str, Any] = {
    "has_biases": True,
    "num_layers": 1,
    "dropout": 0.0,
    "bidirectional": False,
    "batch_first": True,
}


@dataclass(frozen=True)
class Embedding:
    """Maps every code to a vector: (B, L) integers become (B, L, width).

    Initial vectors are N(0, 1), as in PyTorch.

    >>> Embedding("embedding", num_codes=97, width=8).out_shape((80, 97))
    (80, 8)
    """

    name: str
    num_codes: int
    width: int

    @property
    def shapes(self) -> Mapping[str, Shape]:
        return {f"{self.name}.weight": (self.num_codes, self.width)}

    @property
    def fan_in(self) -> int:
        return 1

    def init_params(self, rng: np.random.Generator, gain: float) -> Iterator[Floats]:
        """Standard normal numbers, independent of the gain."""
        yield rng.normal(size=self.num_codes * self.width)

    def out_shape(self, shape: Shape) -> Shape:
        require(
            len(shape) == 2 and shape[1] == self.num_codes,
            f"{self.name} expects sequences of {self.num_codes} kinds of codes, shape "
            f"(length, {self.num_codes}), got shape {shape}.",
        )
        return (shape[0], self.width)

    def multiply_adds(self, shape: Shape) -> int:
        return 0

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        (weight,) = weights
        return functional.embedding(x, weight)


@dataclass(frozen=True)
class Rnn:
    r"""Recurrent layer with tanh (Elman, 1990), in PyTorch's form.

    .. math::  h_t = \tanh(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})

    Symbols -> here
        h     hidden state, starts at 0      -> output: the last state (B, units), or all states
                                                (B, L, units) with `every_state`

    Parameters are in PyTorch's order and start as U(-1/sqrt(units), 1/sqrt(units)).

    >>> Rnn("rnn", inputs=8, units=256).shapes["rnn.weight_hh"]
    (256, 256)
    """

    name: str
    inputs: int
    units: int
    every_state: bool = False
    """Return all states, as input of another recurrent layer."""
    gates: ClassVar[int] = 1  # blocks of `units` rows in each parameter

    @property
    def shapes(self) -> Mapping[str, Shape]:
        rows = self.gates * self.units
        return {
            f"{self.name}.weight_ih": (rows, self.inputs),
            f"{self.name}.weight_hh": (rows, self.units),
            f"{self.name}.bias_ih": (rows,),
            f"{self.name}.bias_hh": (rows,),
        }

    @property
    def fan_in(self) -> int:
        return self.units

    def out_shape(self, shape: Shape) -> Shape:
        require(
            len(shape) == 2 and shape[0] >= 1 and shape[1] == self.inputs,
            f"{self.name} expects sequences of vectors of {self.inputs} numbers, shape "
            f"(length, {self.inputs}), got shape {shape}.",
        )
        return (shape[0], self.units) if self.every_state else (self.units,)

    def multiply_adds(self, shape: Shape) -> int:
        return shape[0] * self.gates * self.units * (self.inputs + self.units)

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        states, last = torch.rnn_tanh(
            x,
            x.new_zeros(1, x.shape[0], self.units),
            list(weights),
            **ONE_LAYER,
            train=torch.is_grad_enabled(),
        )
        return states if self.every_state else last[0]


@dataclass(frozen=True)
class Lstm(Rnn):
    r"""Long short-term memory (Hochreiter and Schmidhuber, 1997), in PyTorch's form.

    .. math::
        (i, f, g, o) = W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh}, \quad
        c_t = \sigma(f) c_{t-1} + \sigma(i) \tanh(g), \quad h_t = \sigma(o) \tanh(c_t)

    Symbols -> here, beside those of `Rnn`
        c     cell, starts at 0
        W, b  four blocks of `units` rows each, in the order i, f, g, o

    >>> Lstm("lstm", inputs=8, units=256).shapes["lstm.weight_hh"]
    (1024, 256)
    """

    gates: ClassVar[int] = 4

    def multiply_adds(self, shape: Shape) -> int:
        return super().multiply_adds(shape) + shape[0] * 3 * self.units

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        zero = x.new_zeros(1, x.shape[0], self.units)
        states, last, _ = torch.lstm(
            x, (zero, zero), list(weights), **ONE_LAYER, train=torch.is_grad_enabled()
        )
        return states if self.every_state else last[0]
