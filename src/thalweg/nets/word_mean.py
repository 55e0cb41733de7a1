"""Texts as the mean of their word vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from thalweg.core.errors import require
from thalweg.core.types import Floats
from thalweg.nets.net import Shape

PADDING = 0  # code after the end of a short text


@dataclass(frozen=True)
class WordMean:
    r"""Every code has a vector; a text becomes the mean of those of its words, padding left out.

    .. math::  y = \frac{1}{|\{t : c_t \ne 0\}|} \sum_{t : c_t \ne 0} E_{c_t}

    Symbols -> here
        c  codes of a text, 0 is padding   -> x, (B, L) whole numbers
        E  one row for each code           -> weight, (num_codes, width)

    A text without words becomes 0. The row of the padding starts at 0 and has no gradient; the
    others start as N(0, 1). That is PyTorch's ``Embedding(padding_idx=0)``, averaged.

    >>> WordMean("embedding", num_codes=30_002, width=300).out_shape((64, 30_002))
    (300,)
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
        """Standard normal numbers, whatever the gain; 0 for the padding."""
        weight = rng.normal(size=self.num_codes * self.width)
        weight[: self.width] = 0
        yield weight

    def out_shape(self, shape: Shape) -> Shape:
        require(
            len(shape) == 2 and shape[0] >= 1 and shape[1] == self.num_codes,
            f"{self.name} expects sequences of {self.num_codes} kinds of codes, shape "
            f"(length, {self.num_codes}), got shape {shape}.",
        )
        return (self.width,)

    def multiply_adds(self, shape: Shape) -> int:
        return shape[0] * self.width

    def apply(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        (weight,) = weights
        is_word = (x != PADDING).to(weight.dtype)  # (B, L)
        shares = is_word / is_word.sum(1, keepdim=True).clamp(min=1)
        return functional.embedding_bag(x, weight, mode="sum", per_sample_weights=shares)

    def apply_stacked(self, weights: Sequence[Tensor], x: Tensor) -> Tensor:
        (weight,) = weights  # (K, V, W)
        K, L, B = x.shape
        is_word = (x != PADDING).to(weight.dtype)
        shares = is_word / is_word.sum(1, keepdim=True).clamp(min=1)
        first = (
            torch.arange(K, device=x.device).view(K, 1, 1) * self.num_codes
        )  # one table of K V rows
        y = functional.embedding_bag(
            (x + first).transpose(1, 2).reshape(K * B, L),
            weight.reshape(K * self.num_codes, self.width),
            mode="sum",
            per_sample_weights=shares.transpose(1, 2).reshape(K * B, L),
        )
        return y.view(K, B, self.width).transpose(1, 2)  # (K, W, B)
