from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thalweg.core.errors import require
from thalweg.local.base import Batch, Memo, Model, frozen
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
        require(
            0 <= self.strength < math.inf,
            f"strength must not be negative or infinite, got {self.strength}.",
        )
        require(
            0 < self.temperature < math.inf,
            f"temperature must be positive and finite, got {self.temperature}.",
        )

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        import torch

        student = model(params, batch.x)  # (K, B, C)
        with torch.no_grad():
            teacher = frozen(model)(memo["start"], batch.x)
        fit = cross_entropies(student, batch.labels)
        forgotten = not_true_divergences(student, teacher, batch.labels, self.temperature)
        scale = self.strength * self.temperature**2
        return ((fit + scale * forgotten) * batch.weights).sum(1)
