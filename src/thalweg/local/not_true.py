from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from thalweg.core.config import check_ranges
from thalweg.local.base import Batch, Memo, Model, without_dropout
from thalweg.local.distillation import not_true_divergences

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class NotTrue:
    r"""FedNTD: distil the received model's predictions for the *wrong* classes.

    .. math::
        F_k(w) + \beta \tau^2 \, \mathrm{KL}\big(
            \mathrm{softmax}(z^{\neg y}_g / \tau) \,\big\|\, \mathrm{softmax}(z^{\neg y} / \tau)
            \big)

    Symbols, Lee et al. (2022) -> here
        :math:`\beta, \tau`       -> strength, temperature
        :math:`z^{\neg y}`        -> logits without that of the right class
        :math:`z_g`               -> logits of memo["start"], without dropout

    Differs from the released code: the teacher is always without dropout.

    The logits are the parameters themselves. Cross-entropy 0.440190 plus divergence 0.106604:

    >>> import torch
    >>> model = lambda params, x: params[:, None, :]
    >>> batch = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
    >>> params = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    >>> memo = {"start": torch.tensor([[1.0, 0.5, 0.2, -0.3]])}
    >>> round(NotTrue().loss(model, params, batch, memo).item(), 4)
    0.5468
    """

    needs_class_labels: ClassVar[bool] = True  # distils class probabilities

    strength: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)", temperature="(0, inf)")

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        import torch

        student = model(params, batch.x)  # (K, B, C)
        with torch.no_grad():
            teacher = without_dropout(model)(memo["start"], batch.x)
        fit = batch.loss(student, batch.targets)
        divergence = not_true_divergences(student, teacher, batch.targets, self.temperature)
        scale = self.strength * self.temperature**2
        return ((fit + scale * divergence) * batch.weights).sum(1)
