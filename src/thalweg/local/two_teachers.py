from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import Batch, Memo, Model, without_dropout
from thalweg.local.distillation import distances

if TYPE_CHECKING:
    from torch import Tensor


class PastModel(NamedTuple):
    """The client's model at the end of the last latent state; empty before the first change."""

    params: Floats32


@dataclass(frozen=True)
class TwoTeachers:
    r"""FLwF-2T: distil two teachers, the client's model of the last state and the received model.

    .. math::
        \mathrm{CE} + \alpha\, \mathrm{dist}(\text{past})
        + \beta\, \mathrm{dist}(\text{global}), \qquad
        \mathrm{dist}(t) =
        -\textstyle\sum_c \mathrm{softmax}(t/\tau)_c \log \mathrm{softmax}(z/\tau)_c

    The first teacher is the client's model when the latent state last changed, the second the
    model it received in this round. Before the first change the received model is both.

    Symbols, Usmanova et al. (2021) -> here
        :math:`\alpha, \beta`  -> weight_past, weight_global
        :math:`\tau`           -> temperature

    Differs from the paper: its text was not available, and SFedPO does not say which term has which
    weight. The sum allows all pairs of values that SFedPO tried. A convex mix of the three terms is
    ``weight_ce=0.3, weight_past=0.3, weight_global=0.4``.

    The logits are the parameters themselves: 0.407606 + 0.3 * 1.097793 + 0.3 * 1.340348.

    >>> import torch
    >>> model = lambda params, x: params[:, None, :]
    >>> batch = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
    >>> memo = {"past": torch.tensor([[1.5, 1.0, 0.5]]), "start": torch.tensor([[0.0, 1.0, 2.0]])}
    >>> loss = TwoTeachers().loss(model, torch.tensor([[2.0, 1.0, 0.0]]), batch, memo)
    >>> round(loss.item(), 4)
    1.139
    """

    uses_true_states: ClassVar[bool] = True  # is notified when the latent state changes

    needs_class_labels: ClassVar[bool] = True  # distils class probabilities

    weight_ce: float = 1.0
    weight_past: float = 0.3
    weight_global: float = 0.3
    temperature: float = 2.0

    def __post_init__(self) -> None:
        check_ranges(
            self,
            weight_ce="[0, inf)",
            weight_past="[0, inf)",
            weight_global="[0, inf)",
            temperature="(0, inf)",
        )

    def init(self, num_params: int) -> PastModel:
        return PastModel(np.empty(0, dtype=np.float32))

    def start_tick(
        self, state: PastModel, probe: ModelProbe, rows: Ints, changed: bool
    ) -> PastModel:
        return PastModel(probe.params()) if changed else state

    def memo(self, state: PastModel, start: Floats32) -> dict[str, Floats32]:
        return {"past": state.params if len(state.params) else start}

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        import torch

        student, teacher = model(params, batch.x), without_dropout(model)
        with torch.no_grad():
            past, received = teacher(memo["past"], batch.x), teacher(memo["start"], batch.x)
        fit = batch.loss(student, batch.targets)
        to_past = distances(student, past, self.temperature)
        to_received = distances(student, received, self.temperature)
        mix = self.weight_ce * fit + self.weight_past * to_past + self.weight_global * to_received
        return (mix * batch.weights).sum(1)
