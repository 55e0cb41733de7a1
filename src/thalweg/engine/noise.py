"""Dropout that does not depend on who is computed together with whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Ints, Job
from thalweg.nets import Net


def noise_seeds(seed: int, jobs: Sequence[Job], rnd: int) -> Ints:
    """(K,) where each client's dropout starts in a round."""
    return np.array(
        [rng_for(seed, Draw.LOCAL, rnd, job.client).integers(2**62) for job in jobs],
        dtype=np.int64,
    )


class NoisyModel:
    """A net in training: each client draws from a generator of its own, new for every step."""

    def __init__(self, net: Net, is_stacked: bool, seeds: Ints, num_steps: Ints) -> None:
        self._net, self._is_stacked = net, is_stacked
        self._seeds = [int(seed) + int(step) for seed, step in zip(seeds, num_steps, strict=True)]

    def __call__(self, params: Tensor, x: Tensor) -> Tensor:
        noise = [torch.Generator().manual_seed(seed) for seed in self._seeds]
        if self._is_stacked:
            return self._net.apply_stacked(params, x, noise)
        return torch.stack([self._net.apply(*mine) for mine in zip(params, x, noise, strict=True)])

    def still(self, params: Tensor, x: Tensor) -> Tensor:
        """Without dropout: as a teacher."""
        if self._is_stacked:
            return self._net.apply_stacked(params, x)
        return torch.stack([self._net.apply(*mine) for mine in zip(params, x, strict=True)])
