"""A text classifier."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.core.errors import require
from thalweg.nets.builders import build_head, check_projection, check_units
from thalweg.nets.net import Net, Shape


@dataclass(frozen=True)
class FastText:
    """The mean of the word vectors of a text, and one linear layer (Joulin et al., 2017).

    Reads sequences in which code 0 is padding, such as those of `AgNews`. Only single words: the
    original also has vectors for pairs of adjacent words. Nearly all parameters are word vectors:

    >>> FastText().build((64, 30_002), num_classes=4).num_params
    9001804

    For quick simulations use fewer words (``data.vocabulary``) or a smaller `width`; below two
    million parameters clients are also trained in stacks.
    """

    width: int = 300  # size of a word vector
    projection: int | None = None
    """Size of a projection head before the linear layer; None: no head."""

    def __post_init__(self) -> None:
        require(self.width >= 1, f"FastText needs width >= 1, got {self.width}.")
        check_units("FastText", self.width)
        check_projection("FastText", self.projection)

    def build(self, input_shape: Shape, num_classes: int) -> Net:
        require(
            len(input_shape) == 2,
            f"the net 'fast-text' needs sequences of codes, but samples have shape {input_shape}. "
            "For images use 'cnn', for plain features 'mlp'.",
        )
        from thalweg.nets.word_mean import WordMean

        first = WordMean("embedding", input_shape[1], self.width)
        last = build_head(self.width, (), num_classes, projection=self.projection)
        return Net((first, *last), tuple(input_shape))
