from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints, LastLayer, MemoryContext
from thalweg.memory.base import round_count


@dataclass(frozen=True)
class Importance:
    r"""Importance sampling: the samples with the largest gradients stay.

    The value of a sample is the norm of its gradient in the last layer, under the model the client is
    training,

    .. math::  \lVert \mathrm{softmax}(z) - \mathrm{onehot}(y) \rVert \sqrt{\lVert h \rVert^2 + 1}

    The best ``budget * capacity`` new samples come in, and the held samples of the lowest value, scored
    again with the same model, go out.

    Differs from Li et al. 2021: which samples go out is our choice. `outlier` leaves out candidates whose
    norm exceeds that many times the mean; None: nobody is left out.
    """

    budget: float = 0.5
    """Largest share of the memory that one tick may renew."""
    outlier: float | None = None

    def __post_init__(self) -> None:
        check_ranges(self, budget="(0, 1]", outlier="(0, inf) or none")

    @property
    def probed_model(self) -> Literal["current"]:
        return "current"

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        norms = gradient_norms(require_last_layer(intake, self))
        held, new = norms[: intake.held], norms[intake.held :]
        best = np.argsort(-new, kind="stable")
        if self.outlier is not None and len(new):
            best = best[new[best] <= self.outlier * new.mean()]
        free = intake.capacity - intake.held
        allowed = max(round_count(self.budget * intake.capacity, None), free)
        coming = best[:allowed]
        if len(coming) < min(free, intake.num_new):  # rather an outlier than an empty place
            coming = np.argsort(-new, kind="stable")[:free]
        going = np.argsort(held, kind="stable")[: max(len(coming) - free, 0)]
        return None, replace_samples(intake.held, going, coming)


def require_last_layer(intake: MemoryContext, policy: object) -> LastLayer:
    if intake.last_layer is None:
        raise ConfigError(
            f"{type(policy).__name__} looks at the model, but was not shown it; run it in a federation."
        )
    return intake.last_layer


def gradient_norms(last_layer: LastLayer) -> Floats:
    """(n,) norm of each sample's gradient in the last layer, bias included.

    >>> errors = np.array([[-0.33475904, 0.24472847, 0.09003057]])
    >>> float(gradient_norms(LastLayer(errors, np.array([[1.0, 2.0]])))[0].round(6))
    1.039407
    """
    errors, features = (part.astype(np.float64) for part in last_layer)
    norms: Floats = np.sqrt((errors**2).sum(1) * ((features**2).sum(1) + 1))
    return norms


def replace_samples(held: int, going: Ints, coming: Ints) -> Ints:
    """Positions after some new samples took the places of some held ones, then the free places."""
    kept = np.arange(held)
    kept[going] = held + coming[: len(going)]
    return np.concatenate([kept, held + coming[len(going) :]])
