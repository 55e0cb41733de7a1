from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thalweg.core.config import check_ranges
from thalweg.local.quadratic import Quadratic, QuadraticObjective


@dataclass(frozen=True)
class Proximal(QuadraticObjective):
    r"""FedProx: cross-entropy plus a penalty on the distance from the received model.

    .. math::  F_k(w) + \tfrac{\mu}{2} \lVert w - x \rVert^2

    Symbols, Li et al. (2020) -> here
        :math:`\mu`  -> strength
        x            -> memo["start"]

    Weight decay, a penalty on the distance from zero, is separate (`LocalTraining.weight_decay`)
    and is added to it.

    The model is undecided between two classes, so that the loss is log 2 plus the penalty
    0.05 (0.5² + 0.5²) = 0.025:

    >>> import torch
    >>> model = lambda params, x: torch.zeros(1, 1, 2)
    >>> from thalweg.local import Batch
    >>> batch = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
    >>> memo = {"start": torch.tensor([[1.0, 1.0]])}
    >>> loss = Proximal(strength=0.1).loss(model, torch.tensor([[1.5, 0.5]]), batch, memo)
    >>> round(loss.item(), 4)
    0.7181
    """

    strength: float = 0.1

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)")

    def penalty(self, memo: Mapping[str, Any]) -> Quadratic:
        return Quadratic(scale=self.strength, centre=memo["start"])
