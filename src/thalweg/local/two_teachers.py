from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
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
        \alpha\, \mathrm{CE} + \beta\, \mathrm{dist}(\text{past})
        + (1 - \alpha - \beta)\, \mathrm{dist}(\text{global}), \qquad
        \mathrm{dist}(t) =
        -\textstyle\sum_c \mathrm{softmax}(t/\tau)_c \log \mathrm{softmax}(z/\tau)_c

    The first teacher is the client's model when the latent state last changed, the second the
    model it received in this round. Before the first change the received model is both.

    Symbols, Usmanova et al. (2021) -> here
        :math:`\alpha, \beta, \tau`  -> weight_ce, weight_past, temperature

    Differs from the paper: its mix is not fully known. ``convex`` fits the grid of values in
    SFedPO; ``additive`` is
    :math:`\mathrm{CE} + \alpha\, \mathrm{dist}(\text{past}) + \beta\,
    \mathrm{dist}(\text{global})`, as in implementations with one teacher.

    The logits are the parameters themselves: 0.3 * 0.407606 + 0.3 * 1.097793 + 0.4 * 1.340348.

    >>> import torch
    >>> model = lambda params, x: params[:, None, :]
    >>> batch = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
    >>> memo = {"past": torch.tensor([[1.5, 1.0, 0.5]]), "start": torch.tensor([[0.0, 1.0, 2.0]])}
    >>> loss = TwoTeachers().loss(model, torch.tensor([[2.0, 1.0, 0.0]]), batch, memo)
    >>> round(loss.item(), 4)
    0.9878
    """

    uses_true_states: ClassVar[bool] = True  # is notified when the latent state changes

    needs_class_labels: ClassVar[bool] = True  # distils class probabilities

    weight_ce: float = 0.3
    weight_past: float = 0.3
    temperature: float = 2.0
    form: Literal["convex", "additive"] = "convex"

    def __post_init__(self) -> None:
        check_literals(self)
        for name in ("weight_ce", "weight_past"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"{name} must not be negative, got {value}.")
        require(
            self.form == "additive" or self.weight_ce + self.weight_past <= 1,
            "in the convex form weight_ce + weight_past must be at most 1, got "
            f"{self.weight_ce} + {self.weight_past}.",
        )
        check_ranges(self, temperature="(0, inf)")

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
        a, b = self.weight_ce, self.weight_past
        if self.form == "convex":
            mix = a * fit + b * to_past + (1 - a - b) * to_received
        else:
            mix = fit + a * to_past + b * to_received
        return (mix * batch.weights).sum(1)
