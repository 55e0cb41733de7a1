from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.core.config import check_ranges
from thalweg.local.base import Batch, Memo, Model, without_dropout
from thalweg.local.distillation import cross_entropies, not_true_divergences

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class NotTrue:
    r"""FedNTD: what the round's first model thinks of the *wrong* classes is not to be forgotten.

    .. math::
        F_k(w) + \beta \tau^2 \, \mathrm{KL}\big(
            \mathrm{softmax}(z^{\neg y}_g / \tau) \,\big\|\, \mathrm{softmax}(z^{\neg y} / \tau) \big)

    Symbols, Lee et al. 2022 -> here
        :math:`\beta, \tau`       -> strength, temperature
        :math:`z^{\neg y}`        -> logits without the one of the right class
        :math:`z_g`               -> logits of memo["start"], without dropout
    """

    strength: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)", temperature="(0, inf)")

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        import torch

        student = model(params, batch.x)  # (K, B, C)
        with torch.no_grad():
            teacher = without_dropout(model)(memo["start"], batch.x)
        fit = cross_entropies(student, batch.labels)
        forgotten = not_true_divergences(student, teacher, batch.labels, self.temperature)
        scale = self.strength * self.temperature**2
        return ((fit + scale * forgotten) * batch.weights).sum(1)
