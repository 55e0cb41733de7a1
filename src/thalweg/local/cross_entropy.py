from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.local.base import Batch, Memo, Model

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CrossEntropy:
    r"""Cross-entropy: minus the log-probability of the right label, averaged over the batch.

    .. math::  F_k(w) = -\sum_b a_{kb} \log \mathrm{softmax}(f(w, x_{kb}))_{y_{kb}}

    Symbols -> here
        :math:`a_{kb}`          weight of sample b of client k -> Batch.weights, usually 1/|batch|
        :math:`x_{kb}, y_{kb}`  -> Batch.x, Batch.labels
        f                       -> model

    >>> import torch
    >>> model = lambda params, x: torch.zeros(1, 2, 4)  # four classes, all equally likely
    >>> batch = Batch(torch.zeros(1, 2, 1), torch.tensor([[0, 3]]), torch.tensor([[0.5, 0.5]]))
    >>> loss = CrossEntropy().loss(model, torch.zeros(1, 1), batch, {})
    >>> [round(float(value), 4) for value in loss]  # log 4
    [1.3863]
    """

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        from torch.nn.functional import cross_entropy

        logits = model(params, batch.x).transpose(1, 2)  # (K, C, B), as cross_entropy expects
        per_sample = cross_entropy(logits, batch.labels, reduction="none")  # (K, B)
        return (per_sample * batch.weights).sum(1)
