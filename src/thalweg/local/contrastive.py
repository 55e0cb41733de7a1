from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import (
    Batch,
    Memo,
    Model,
    TrainingSummary,
    with_trained_features,
    without_dropout,
)

if TYPE_CHECKING:
    from torch import Tensor


class LastModel(NamedTuple):
    """The client's model at the end of its last round; empty before its first round."""

    params: Floats32


@dataclass(frozen=True)
class Moon:
    r"""MOON: pull features towards those of the received model, away from the client's last ones.

    .. math::
        F_k(w) - \mu \log \frac{e^{\cos(z, z_g)/\tau}}{e^{\cos(z, z_g)/\tau} + e^{\cos(z,
        z_p)/\tau}}

    Features are the inputs of the last layer, which must be fully connected. With a projection
    head in front of it they are the output of the head, as in the paper. The features of a linear
    net are its logits.

    Symbols, Li, He, Song (2021) -> here
        :math:`F_k`              -> `TaskLoss`
        :math:`\mu, \tau`        -> strength, temperature
        :math:`z, z_g, z_p`      -> features of params, memo["start"], memo["previous"];
                                    the last two without dropout

    In a client's first round the received model is used as its last one, and the term is the
    constant log 2. A round without a step leaves the last model unchanged.

    The contrastive term alone, with cosines 8/9 and 0: log(1 + exp(-8/9)).

    >>> import torch
    >>> z, z_g, z_p = (torch.tensor([[v]]) for v in ([1., 2., 2.], [2., 1., 2.], [2., -1., 0.]))
    >>> round(contrasts(z, z_g, z_p, temperature=1.0).item(), 4)
    0.3444
    """

    strength: float = 1.0
    temperature: float = 1.0
    per_session: bool = False
    """Reset the last model when a session starts."""

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)", temperature="(0, inf)")

    def init(self, num_params: int) -> LastModel:
        return LastModel(np.empty(0, dtype=np.float32))

    def start_tick(
        self, state: LastModel, probe: ModelProbe, rows: Ints, changed: bool
    ) -> LastModel:
        return state

    def memo(self, state: LastModel, start: Floats32) -> dict[str, Floats32]:
        return {"previous": state.params if len(state.params) else start}

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        import torch

        logits, features = with_trained_features(model)(params, batch.x)
        features_of = with_trained_features(without_dropout(model))
        with torch.no_grad():
            _, received = features_of(memo["start"], batch.x)
            _, previous = features_of(memo["previous"], batch.x)
        contrast = contrasts(features, received, previous, self.temperature)
        fit = batch.loss(logits, batch.targets)
        return ((fit + self.strength * contrast) * batch.weights).sum(1)

    def finish_round(
        self, state: LastModel, broadcast: Mapping[str, Floats32], summary: TrainingSummary
    ) -> tuple[LastModel, dict[str, Floats32]]:
        return (LastModel(summary.params) if summary.num_steps else state), {}


def contrasts(features: Tensor, like: Tensor, unlike: Tensor, temperature: float) -> Tensor:
    """Return (K, B) the contrastive term for features (K, B, F), by cosine similarity.

    The term is small if the features are like `like` and unlike `unlike`. A zero vector has cosine
    0 with every other.

    >>> import torch
    >>> z, z_g, z_p = (torch.tensor([[v]]) for v in ([1., 2., 2.], [2., 1., 2.], [2., -1., 0.]))
    >>> [round(contrasts(z, z_g, z_p, t).item(), 6) for t in (1.0, 0.5)]
    [0.344378, 0.15616]
    """
    from torch.nn.functional import cosine_similarity, softplus

    gap = cosine_similarity(features, unlike, dim=2) - cosine_similarity(features, like, dim=2)
    return softplus(gap / temperature)
