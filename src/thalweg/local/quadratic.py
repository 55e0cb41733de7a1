"""Objectives that add a quadratic penalty on the parameters to the loss of the task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from thalweg.local.base import Batch, Memo, Model, Objective
from thalweg.local.task_loss import TaskLoss

if TYPE_CHECKING:
    from torch import Tensor


class Quadratic(NamedTuple):
    r"""A penalty on the parameters w of each of K clients.

    .. math::
        \textstyle\sum_i \tfrac{1}{2} s\, c_i (w_i - a_i)^2 + b_i (w_i - a_i)

    Symbols -> here: s -> scale, c -> curvature, a -> centre, b -> slope. The vectors are (K, P),
    arrays or tensors as in the memo.
    """

    scale: float = 0.0
    curvature: Any = None  # None: one
    centre: Any = None  # None: zero
    slope: Any = None  # None: zero


class QuadraticObjective:
    """The loss of the task plus a quadratic penalty: implement `penalty`.

    It is the same during a tick. The native kernel computes such an objective completely, if its
    class does not define another `loss`.
    """

    def penalty(self, memo: Mapping[str, Any]) -> Quadratic | None:
        """Return the penalty of K clients; None: there is none.

        The memo has tensors, as in `Objective.loss`, or arrays.
        """
        raise NotImplementedError

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        fit = TaskLoss().loss(model, params, batch, memo)
        quadratic = self.penalty(memo)
        if quadratic is None:
            return fit
        from thalweg.local.penalty import compute_quadratic

        return fit + compute_quadratic(params, quadratic)


def is_quadratic(objective: Objective) -> bool:
    """Return whether an objective is the loss of the task, with or without a quadratic penalty."""
    kind = type(objective)
    return kind is TaskLoss or (
        issubclass(kind, QuadraticObjective) and kind.loss is QuadraticObjective.loss
    )
