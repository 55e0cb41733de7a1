from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from thalweg.core.claims import Delivery, check_vector
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import Batch, Memo, Model, without_dropout
from thalweg.local.distillation import (
    binary_distillation,
    divergences,
    gradient_shares,
)
from thalweg.local.task_loss import TaskLoss

if TYPE_CHECKING:
    from torch import Tensor


class TeacherModel(NamedTuple):
    """The teacher of the current session, and the number of sessions so far."""

    params: Floats32  # (P,) the last model of the previous session; empty in the first session
    sessions: int


@dataclass(frozen=True)
class Continuous:
    r"""Distillation from the previous session: its last model teaches the clients of this session.

    .. math::
        F_k(w) + \kappa\, \mathrm{KL}\big( \mathrm{softmax}(t) \,\big\|\, \mathrm{softmax}(z) \big)

    with the cross-entropy :math:`F_k`, the logits z of the client's model and t of the teacher. In
    the first session there is no teacher, and the loss is the cross-entropy.

    The form ``glfc`` is that of Dong et al. (2022), with sigmoids instead of a softmax:

    .. math::
        \tfrac12\, u\, \mathrm{BCE}(z, \mathrm{onehot}(y)) + \tfrac12 \kappa\, \mathrm{BCE}(z, t^*)

    where :math:`t^*` is the one-hot label with the teacher's sigmoids in the old classes, and u
    gives more weight to samples that are still predicted badly, separately in old and new classes
    (`gradient_shares`).

    Symbols -> here
        :math:`\kappa`       -> strength
        :math:`C_{old}`      -> old_classes
        t                    -> logits of memo["teacher"], without dropout

    Differs from Dong et al.: the server does not know which classes are old; they are the first
    `old_classes`, or all.

    The logits are the parameters themselves. Cross-entropy 0.407606 plus divergence 0.308994:

    >>> import torch
    >>> model = lambda params, x: params[:, None, :]
    >>> batch = Batch(torch.zeros(1, 1, 1), torch.tensor([[0]]), torch.ones(1, 1))
    >>> memo = {"teacher": torch.tensor([[1.0, 1.0, 1.0]])}
    >>> loss = Continuous().loss(model, torch.tensor([[2.0, 1.0, 0.0]]), batch, memo)
    >>> round(loss.item(), 4)
    0.7166
    """

    needs_single_model = False
    needs_class_labels: ClassVar[bool] = True  # distils class probabilities

    strength: float = 1.0
    form: Literal["kl", "glfc"] = "kl"
    old_classes: int | None = None
    """For ``glfc``: number of classes that the teacher covers, from the first on; none: all."""
    uniform_session: int | None = None
    """Number of a session, counted from 0, whose teacher has only zeros as parameters, so that it
    gives all classes the same probability; none: all teachers are last models.

    The study's code has such a teacher in the first session after the pilot session (1).
    """

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            strength="[0, inf)",
            old_classes="[0, inf) or none",
            uniform_session="[1, inf) or none",
        )

    # --- client ---

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        import torch

        if "teacher" not in memo:
            return TaskLoss().loss(model, params, batch, memo)
        student = model(params, batch.x)  # (K, B, C)
        with torch.no_grad():
            teacher = without_dropout(model)(memo["teacher"], batch.x)
        if self.form == "kl":
            fit = batch.loss(student, batch.targets)
            kept = divergences(student, teacher)
            return ((fit + self.strength * kept) * batch.weights).sum(1)
        num_old = student.shape[2] if self.old_classes is None else self.old_classes
        fit, kept = binary_distillation(student, teacher, batch.targets, num_old)
        shares = gradient_shares(student, batch.targets, batch.weights, num_old)
        return ((fit * shares + self.strength * kept) / 2 * batch.weights).sum(1)

    def validate_delivery(self, delivery: Delivery) -> str | None:
        """Accept a teacher, or none in the first session."""
        if "teacher" not in delivery.values:
            return None
        return check_vector(delivery.values, "teacher", delivery.num_params)

    # --- server ---

    def init_server(self, num_clients: int, num_params: int) -> TeacherModel:
        return TeacherModel(np.empty(0, dtype=np.float32), 0)

    def start_session(self, state: TeacherModel, last: Floats32, members: Ints) -> TeacherModel:
        is_uniform = state.sessions == self.uniform_session
        return TeacherModel(np.zeros_like(last) if is_uniform else last, state.sessions + 1)

    def broadcast(self, state: TeacherModel, clients: Ints) -> dict[str, Floats32]:
        if not len(state.params):
            return {}
        return {"teacher": np.broadcast_to(state.params, (len(clients), len(state.params)))}

    def collect(
        self, state: TeacherModel, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> TeacherModel:
        return state
