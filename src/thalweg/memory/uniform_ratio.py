from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, MemoryContext
from thalweg.memory.base import RenewsShare


@dataclass(frozen=True)
class UniformRatio(RenewsShare):
    r"""Renew a fixed share of the memory at every tick, whatever the latent state.

    At each tick :math:`\alpha n` samples, chosen uniformly, are overwritten by new ones. This is
    SFedPO without its sampling module (DDS), and the memory of the "original" host methods in its
    modularity table.

    Symbols, SFedPO -> here
        :math:`\alpha`  share renewed per tick  -> budget
        n  size of the memory                   -> MemoryContext.capacity

    >>> from thalweg.memory import make_context
    >>> context = make_context(capacity=10, held=10, num_new=10)
    >>> _, kept = UniformRatio(budget=0.3).keep(None, context, np.random.default_rng(0))
    >>> (kept >= 10).sum().item()  # positions from 10 on are new samples
    3
    """

    budget: float = 0.5
    """Share of the memory that one tick renews."""
    stochastic_rounding: bool = False
    """Round the number of renewed samples at random, so that its mean is exact."""

    def __post_init__(self) -> None:
        check_ranges(self, budget="(0, 1]")

    def find_share(self, context: MemoryContext) -> float:
        return self.budget

    def predict_renewal(self, state: None, context: MemoryContext) -> Floats:
        share = min(self.budget, context.num_new / context.capacity)
        return np.full(len(context.outlook.probs), share)
