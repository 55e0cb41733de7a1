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
class LocalTraining:
    r"""Stochastic gradient descent on the samples in a client's memory.

    .. math::
        g = \nabla F(w) + \lambda w, \qquad v \leftarrow \mu v + g, \qquad w \leftarrow w - \eta v

    Symbols, as in ``torch.optim.SGD`` -> here
        :math:`\eta`      -> lr
        :math:`\mu`       -> momentum; the velocity v starts at zero in every round
        :math:`\lambda`   -> weight_decay

    The work per tick is either `steps` or `passes`. A step uses a mini-batch drawn from the memory
    without replacement (the whole memory if it holds at most `batch_size` samples). A pass goes
    through the memory once in random order, cut into mini-batches, the last one smaller; half a
    pass uses half of the samples.

    >>> local = LocalTraining(lr=0.1, batch_size=4, passes=1.5)
    >>> [len(batch) for batch in local.batches(held=10, rng=np.random.default_rng(0))]
    [4, 4, 2, 4, 1]

    Two steps with gradient 2: v = 2 and w = 1 - 0.5 * 2 = 0, then v = 0.5 * 2 + 2 = 3 and w = -1.5.

    >>> import torch
    >>> local = LocalTraining(lr=0.5, momentum=0.5, steps=2)
    >>> params, velocity = torch.ones(1, 1), torch.zeros(1, 1)
    >>> for _ in range(2):
    ...     local.descend(params, torch.tensor([[2.0]]), velocity)
    >>> params.item()
    -1.5
    """

    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    batch_size: int = 64
    steps: int | None = None
    """Mini-batches per tick; give either `steps` or `passes`."""
    passes: float | None = None
    """Passes over the memory per tick."""
    decay: LrDecay | None = choice(DECAYS, default=None)
    """Learning-rate schedule within a session; none: constant."""

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
            "give either steps or passes as the work per tick, not both or none; got "
            f"steps={self.steps}, passes={self.passes}.",
        )

    def lr_scale(self, age: int) -> float:
        """Return the factor on the learning rate after `age` rounds of a session."""
        return 1.0 if self.decay is None else self.decay.factor(age)

    def batches(self, held: int, rng: np.random.Generator) -> list[Ints]:
        """Return the mini-batches of one tick, as positions in a memory of `held` samples."""
        if held == 0:
            return []
        if self.steps is not None:
            return [self._draw_batch(held, rng) for _ in range(self.steps)]
        assert self.passes is not None  # exactly one of the two is set
        todo = max(1, round(self.passes * held))  # samples left to use
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
        """Take one step, without autograd: changes `params` and, with momentum, `velocity`.

        `lr_scale` (K, 1) multiplies each client's learning rate; None: no scaling.
        """
        direction = self.direction(params, gradient, velocity)
        if lr_scale is None:
            params.add_(direction, alpha=-self.lr)
        else:
            params.sub_(direction * (self.lr * lr_scale))

    def direction(self, params: Tensor, gradient: Tensor, velocity: Tensor) -> Tensor:
        """Return the gradient with weight decay and momentum. Changes `velocity` in place."""
        if self.weight_decay:
            gradient = gradient.add(params, alpha=self.weight_decay)
        if self.momentum:
            gradient = velocity.mul_(self.momentum).add_(gradient)
        return gradient

    def _draw_batch(self, held: int, rng: np.random.Generator) -> Ints:
        if held <= self.batch_size:
            return np.arange(held)
        return rng.choice(held, size=self.batch_size, replace=False)
