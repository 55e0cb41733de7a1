from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import Batch, Memo, Model, without_dropout
from thalweg.local.cross_entropy import CrossEntropy
from thalweg.local.distillation import (
    binary_distillation,
    cross_entropies,
    divergences,
    gradient_shares,
)

if TYPE_CHECKING:
    from torch import Tensor


class TeacherModel(NamedTuple):
    """The last model of the session before; empty in the first session."""

    params: Floats32


@dataclass(frozen=True)
class Continuous:
    r"""The last model of the session before teaches the clients of this one.

    .. math::
        F_k(w) + \kappa\, \mathrm{KL}\big( \mathrm{softmax}(t) \,\big\|\, \mathrm{softmax}(z) \big)

    with the logits z of the client's model and t of the teacher. In the first session nobody teaches, and the loss
    is the cross-entropy.

    The form ``glfc`` is that of Dong et al. (2022), with sigmoids instead of a softmax:

    .. math::
        \tfrac12\, u\, \mathrm{BCE}(z, \mathrm{onehot}(y)) + \tfrac12 \kappa\, \mathrm{BCE}(z, t^*)

    where :math:`t^*` is the one-hot answer with the teacher's opinion in the place of old classes, and u favours
    samples that are still predicted badly, among old and among new classes separately. What the old classes are
    the server does not know: they are the first `old_classes`, or all.

    Symbols -> here
        :math:`\kappa`       -> strength
        :math:`C_{old}`      -> old_classes
        t                    -> logits of memo["teacher"], without dropout
    """

    strength: float = 1.0
    form: Literal["kl", "glfc"] = "kl"
    old_classes: int | None = None
    """For ``glfc``: how many classes, from the first on, the teacher has an opinion on; none: all."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, strength="[0, inf)", old_classes="[0, inf) or none")

    # --- at the client ---

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        import torch

        if "teacher" not in memo:
            return CrossEntropy().loss(model, params, batch, memo)
        student = model(params, batch.x)  # (K, B, C)
        with torch.no_grad():
            teacher = without_dropout(model)(memo["teacher"], batch.x)
        if self.form == "kl":
            fit = cross_entropies(student, batch.labels)
            kept = divergences(student, teacher)
            return ((fit + self.strength * kept) * batch.weights).sum(1)
        num_old = student.shape[2] if self.old_classes is None else self.old_classes
        fit, kept = binary_distillation(student, teacher, batch.labels, num_old)
        shares = gradient_shares(student, batch.labels, batch.weights, num_old)
        return ((fit * shares + self.strength * kept) / 2 * batch.weights).sum(1)

    # --- at the server ---

    def init_server(self, num_clients: int, num_params: int) -> TeacherModel:
        return TeacherModel(np.empty(0, dtype=np.float32))

    def start_session(self, notes: TeacherModel, last: Floats32, members: Ints) -> TeacherModel:
        return TeacherModel(last)

    def broadcast(self, notes: TeacherModel, clients: Ints) -> dict[str, Floats32]:
        if not len(notes.params):
            return {}
        return {"teacher": np.broadcast_to(notes.params, (len(clients), len(notes.params)))}

    def collect(
        self, notes: TeacherModel, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> TeacherModel:
        return notes
