from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.local.base import Batch, Memo, Model

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TaskLoss:
    r"""The loss of the task, averaged over the batch: cross-entropy or squared error by default.

    .. math::  F_k(w) = \sum_b a_{kb}\, \ell(f(w, x_{kb}), y_{kb})

    Symbols -> here
        :math:`a_{kb}`          weight of sample b of client k -> Batch.weights, usually 1/|batch|
        :math:`x_{kb}, y_{kb}`  -> Batch.x, Batch.targets
        :math:`\ell`            -> Batch.loss, which the scenario chooses (`Scenario.loss`)
        f                       -> model

    >>> import torch
    >>> model = lambda params, x: torch.zeros(1, 2, 4)  # four classes, all equally likely
    >>> batch = Batch(torch.zeros(1, 2, 1), torch.tensor([[0, 3]]), torch.tensor([[0.5, 0.5]]))
    >>> loss = TaskLoss().loss(model, torch.zeros(1, 1), batch, {})
    >>> [round(float(value), 4) for value in loss]  # log 4
    [1.3863]
    """

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        per_sample = batch.loss(model(params, batch.x), batch.targets)  # (K, B)
        return (per_sample * batch.weights).sum(1)
