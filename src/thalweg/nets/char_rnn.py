"""A net that predicts the next character."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.nets.builders import build_head
from thalweg.nets.net import Layer, Net, Shape


@dataclass(frozen=True)
class CharRnn:
    """Character RNN: an embedding, recurrent layers, and a linear layer on the last state.

    The net of Marfoq et al. (2023) for Shakespeare, which has 100 codes there and 97 in
    `Shakespeare`. With ``cell="lstm"`` it is the net of LEAF (Caldas et al. 2018).

    >>> CharRnn().build((80, 100), num_classes=100).num_params
    226180
    >>> CharRnn("lstm").build((80, 97), num_classes=97).num_params
    824425
    """

    cell: Literal["rnn", "lstm"] = "rnn"
    """Kind of the recurrent layers."""
    embedding: int = 8  # size of an embedding vector
    units: int = 256  # units of each layer
    layers: int = 2

    def __post_init__(self) -> None:
        check_literals(self)
        for name in ("embedding", "units", "layers"):
            value = getattr(self, name)
            require(value >= 1, f"CharRnn needs {name} >= 1, got {value}.")
        check_ranges(self, embedding="[1, UNITS]", units="[1, UNITS]", layers="[1, MODELS]")

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        require(
            len(input_shape) == 2,
            f"the net 'char-rnn' needs sequences of codes, but samples have shape {input_shape}. "
            "For images use 'cnn', for plain features 'mlp'.",
        )
        from thalweg.nets.recurrent import Embedding, Lstm, Rnn

        make_layer = {"rnn": Rnn, "lstm": Lstm}[self.cell]
        layers: list[Layer] = [Embedding("embedding", input_shape[1], self.embedding)]
        for i in range(1, self.layers + 1):
            inputs = self.embedding if i == 1 else self.units
            every_state = i < self.layers
            layers.append(make_layer(f"{self.cell}{i}", inputs, self.units, every_state))
        return Net((*layers, *build_head(self.units, (), num_classes)), tuple(input_shape))
