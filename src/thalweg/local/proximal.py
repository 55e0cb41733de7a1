from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.core.config import check_ranges
from thalweg.local.base import Batch, Memo, Model
from thalweg.local.cross_entropy import CrossEntropy

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Proximal:
    r"""FedProx: cross-entropy, and a spring to the model the round began with.

    .. math::  F_k(w) + \tfrac{\mu}{2} \lVert w - x \rVert^2

    Symbols, Li et al. 2020 -> here
        :math:`\mu`  -> strength
        x            -> memo["start"]

    Weight decay is a spring to zero and comes on top of it, from `Sgd`.
    """

    strength: float = 0.1

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)")

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        from thalweg.local.proximal_penalty import proximal_penalty

        fit = CrossEntropy().loss(model, params, batch, memo)
        return fit + proximal_penalty(params, memo["start"], self.strength)
