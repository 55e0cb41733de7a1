from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats32, Ints
from thalweg.local.base import Batch, Memo, Model, TrainingSummary, with_features, without_dropout
from thalweg.local.distillation import cross_entropies

if TYPE_CHECKING:
    from torch import Tensor


class LastModel(NamedTuple):
    """The model with which a client ended its last round; empty before that."""

    params: Floats32


@dataclass(frozen=True)
class Moon:
    r"""MOON: features shall be like those of the received model, and unlike those of the client's own last one.

    .. math::
        F_k(w) - \mu \log \frac{e^{\cos(z, z_g)/\tau}}{e^{\cos(z, z_g)/\tau} + e^{\cos(z, z_p)/\tau}}

    Features are what goes into the net's last layer, so any net will do that ends with a fully connected one. With
    a projection head in front of it they are what the head gives, as in the paper.

    Symbols, Li, He, Song 2021 -> here
        :math:`\mu, \tau`        -> strength, temperature
        :math:`z, z_g, z_p`      -> features of params, memo["start"], memo["previous"];
                                    the last two without dropout

    In a client's first round the received model stands in for its last one, and the term is log 2 whatever the
    client does. A round without a step leaves the last model as it was.
    """

    strength: float = 1.0
    temperature: float = 1.0
    per_session: bool = False
    """Is a client's last model of an earlier session forgotten?"""

    def __post_init__(self) -> None:
        check_ranges(self, strength="[0, inf)", temperature="(0, inf)")

    def init(self, num_params: int) -> LastModel:
        return LastModel(np.empty(0, dtype=np.float32))

    def start_tick(
        self, state: LastModel, look: ModelProbe, rows: Ints, changed: bool
    ) -> LastModel:
        return state

    def memo(self, state: LastModel, start: Floats32) -> dict[str, Floats32]:
        return {"previous": state.params if len(state.params) else start}

    def loss(self, model: Model, params: Tensor, batch: Batch, memo: Memo) -> Tensor:
        import torch

        logits, features = with_features(model)(params, batch.x)
        still = with_features(without_dropout(model))
        with torch.no_grad():
            _, received = still(memo["start"], batch.x)
            _, previous = still(memo["previous"], batch.x)
        contrast = contrasts(features, received, previous, self.temperature)
        fit = cross_entropies(logits, batch.labels)
        return ((fit + self.strength * contrast) * batch.weights).sum(1)

    def finish_round(
        self, state: LastModel, broadcast: Mapping[str, Floats32], summary: TrainingSummary
    ) -> tuple[LastModel, dict[str, Floats32]]:
        return (LastModel(summary.params) if summary.num_steps else state), {}


def contrasts(features: Tensor, like: Tensor, unlike: Tensor, temperature: float) -> Tensor:
    """(K, B) how far features (K, B, F) are from being like some and unlike others, by the angle between them.

    Features without a length are at a right angle to all others.

    >>> import torch
    >>> z, z_g, z_p = (torch.tensor([[v]]) for v in ([1., 2., 2.], [2., 1., 2.], [2., -1., 0.]))
    >>> [round(contrasts(z, z_g, z_p, t).item(), 6) for t in (1.0, 0.5)]
    [0.344378, 0.15616]
    """
    from torch.nn.functional import cosine_similarity, softplus

    nearer = cosine_similarity(features, unlike, dim=2) - cosine_similarity(features, like, dim=2)
    return softplus(nearer / temperature)
