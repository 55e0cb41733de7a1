"""What a local objective is: a pure function of parameters, a batch and a memo, for K clients at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Model = Callable[["Tensor", "Tensor"], "Tensor"]  # params (K, P), x (K, B, ...) -> logits (K, B, C)
Memo = Mapping[str, "Tensor"]  # at least "start": the parameters the round began with, (K, P)


class Batch(NamedTuple):
    """One mini-batch of each of K clients. Shorter ones are padded with weight zero."""

    x: Tensor  # (K, B, *input_shape)
    labels: Tensor  # (K, B) int64
    weights: Tensor  # (K, B) what each sample counts; 1 / size in ordinary training, 0 for padding


class Objective(Protocol):
    """What a client minimises. Any object of this shape will do.

    Pure, and written for K clients at once, because one code then serves both engines: the fast one
    calls it with a few clients stacked, the reference one with a stack of one. Clients must not look
    at one another: the loss of client k may depend on row k of everything, and on nothing else.
    """

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        """(K,) each client's loss, differentiable in params (K, P)."""
