"""A net as objectives see it: K models at once, in training or as teachers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import torch
from torch import Generator, Tensor

from thalweg.core.types import Ints
from thalweg.nets import Net


class NetModel:
    """A function of K parameter vectors and K batches (`local.Model`).

    With seeds it is in training: each client draws its dropout from a generator of its own, new for every call.
    """

    def __init__(self, net: Net, is_stacked: bool, seeds: Sequence[int] | None = None) -> None:
        self._net, self._is_stacked = net, is_stacked  # else one model after the other
        self._seeds = seeds if net.is_noisy else None

    def __call__(self, params: Tensor, x: Tensor) -> Tensor:
        """Logits (K, B, C)."""
        if self._is_stacked:
            return self._net.apply_stacked(params, x, self._noise())
        return torch.stack([self._net.apply(*mine) for mine in self._one_by_one(params, x)])

    def with_features(self, params: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (K, B, C), and what the last layer reads (K, B, F)."""
        if self._is_stacked:
            return self._net.with_features_stacked(params, x, self._noise())
        alone = (self._net.with_features(*mine) for mine in self._one_by_one(params, x))
        logits, features = zip(*alone, strict=True)
        return torch.stack(logits), torch.stack(features)

    @property
    def still(self) -> NetModel:
        """Without dropout: as a teacher."""
        return NetModel(self._net, self._is_stacked)

    def _one_by_one(
        self, params: Tensor, x: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Generator | None]]:
        return zip(params, x, self._noise() or repeat(None, len(params)), strict=True)

    def _noise(self) -> list[Generator] | None:
        if self._seeds is None:
            return None
        return [Generator().manual_seed(seed) for seed in self._seeds]


def step_seeds(seeds: Ints, num_steps: Ints) -> list[int]:
    """Where each client's dropout starts in its present step; `seeds` are of `engine.noise`."""
    return [int(seed) + int(step) for seed, step in zip(seeds, num_steps, strict=True)]
