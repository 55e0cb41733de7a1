"""A net that predicts the next character."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.nets.builders import build_head
from thalweg.nets.net import Layer, Net, Shape


@dataclass(frozen=True)
class CharLstm:
    """Character LSTM: an embedding, LSTM layers, and a linear layer on the last state.

    The net of LEAF for Shakespeare: embeddings of 8 numbers, two layers of 256 units. With the 97
    codes of `Shakespeare` it has 824,425 parameters. Marfoq et al. (2023) describe the same net but
    report 226,180, which two layers of 256 units cannot have.

    >>> CharLstm().build((80, 97), num_classes=97).num_params
    824425
    """

    embedding: int = 8  # size of an embedding vector
    units: int = 256  # units of each layer
    layers: int = 2

    def __post_init__(self) -> None:
        for name in ("embedding", "units", "layers"):
            value = getattr(self, name)
            require(value >= 1, f"CharLstm needs {name} >= 1, got {value}.")
        check_ranges(self, embedding="[1, UNITS]", units="[1, UNITS]", layers="[1, MODELS]")

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        require(
            len(input_shape) == 2,
            f"the net 'char-lstm' needs sequences of codes, but samples have shape {input_shape}. "
            "For images use 'cnn', for plain features 'mlp'.",
        )
        from thalweg.nets.recurrent import Embedding, Lstm

        layers: list[Layer] = [Embedding("embedding", input_shape[1], self.embedding)]
        for i in range(1, self.layers + 1):
            inputs = self.embedding if i == 1 else self.units
            layers.append(Lstm(f"lstm{i}", inputs, self.units, every_state=i < self.layers))
        return Net((*layers, *build_head(self.units, (), num_classes)), tuple(input_shape))
