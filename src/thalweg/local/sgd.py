from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from thalweg.core.config import check_ranges, choice
from thalweg.core.errors import require
from thalweg.core.types import Ints
from thalweg.local.decay import DECAYS, LrDecay

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sgd:
    r"""Stochastic gradient descent on what a client has in memory.

    .. math::  g = \nabla F(w) + \lambda w, \qquad v \leftarrow \mu v + g, \qquad w \leftarrow w - \eta v

    Symbols, as in ``torch.optim.SGD`` -> here
        :math:`\eta`      -> lr
        :math:`\mu`       -> momentum; the velocity v starts at zero in every round
        :math:`\lambda`   -> weight_decay

    Work per tick is either `steps`, each on a mini-batch drawn from the memory without replacement
    (all of it if it holds no more than `batch_size`), or `passes` over the memory: a fresh order
    for each pass, cut into mini-batches, the last one smaller. Half a pass sees half of the samples.

    >>> sgd = Sgd(lr=0.1, batch_size=4, passes=1.5)
    >>> [len(batch) for batch in sgd.batches(held=10, rng=np.random.default_rng(0))]
    [4, 4, 2, 4, 1]
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 64
    steps: int | None = None  # per tick; exactly one of `steps` and `passes`
    passes: float | None = None  # per tick
    decay: LrDecay | None = choice(DECAYS, default=None)
    """How the learning rate falls while a session lasts; none: it does not."""

    def __post_init__(self) -> None:
        check_ranges(
            self,
            lr="(0, inf)",
            momentum="[0, 1)",
            weight_decay="[0, inf)",
            batch_size="[1, inf)",
            steps="[1, inf) or none",
            passes="(0, inf) or none",
        )
        require(
            (self.steps is None) != (self.passes is None),
            f"work per tick is either steps or passes over the memory, one of the two; "
            f"got steps={self.steps}, passes={self.passes}.",
        )

    def lr_scale(self, age: int) -> float:
        """What the learning rate is multiplied by after `age` rounds of a session."""
        return 1.0 if self.decay is None else self.decay.factor(age)

    def batches(self, held: int, rng: np.random.Generator) -> list[Ints]:
        """The mini-batches of one tick, as positions in a memory that holds `held` samples."""
        if held == 0:
            return []
        if self.steps is not None:
            return [self._draw_batch(held, rng) for _ in range(self.steps)]
        assert self.passes is not None  # exactly one of the two is set
        todo = max(1, round(self.passes * held))  # samples to see
        batches: list[Ints] = []
        while todo > 0:
            order = rng.permutation(held)[:todo]
            batches += [
                order[first : first + self.batch_size]
                for first in range(0, len(order), self.batch_size)
            ]
            todo -= held
        return batches

    def descend(
        self, params: Tensor, gradient: Tensor, velocity: Tensor, lr_scale: Tensor | None = None
    ) -> None:
        """One step. Mutates `params` and, with momentum, `velocity`; call it without autograd.

        `lr_scale` (K, 1) multiplies each client's learning rate; None: all of them keep it.
        """
        direction = self.direction(params, gradient, velocity)
        if lr_scale is None:
            params.add_(direction, alpha=-self.lr)
        else:
            params.sub_(direction * (self.lr * lr_scale))

    def direction(self, params: Tensor, gradient: Tensor, velocity: Tensor) -> Tensor:
        """Where to go: the gradient with weight decay and momentum. Mutates `velocity`."""
        if self.weight_decay:
            gradient = gradient.add(params, alpha=self.weight_decay)
        if self.momentum:
            gradient = velocity.mul_(self.momentum).add_(gradient)
        return gradient

    def _draw_batch(self, held: int, rng: np.random.Generator) -> Ints:
        if held <= self.batch_size:
            return np.arange(held)
        return rng.choice(held, size=self.batch_size, replace=False)
