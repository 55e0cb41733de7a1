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
    r"""Importance sampling: keep the samples with the largest gradients.

    The value of a sample is the norm of its gradient in the last layer, under the model that the
    client is training:

    .. math::  \lVert \mathrm{softmax}(z) - \mathrm{onehot}(y) \rVert \sqrt{\lVert h \rVert^2 + 1}

    The ``budget * capacity`` new samples of the highest value replace the held samples of the
    lowest value. Held samples are scored again, with the same model.

    Symbols, Li et al. (2021) -> here
        z, y  logits and label of a sample   -> LastLayer.errors = softmax(z) - onehot(y)
        h     input of the last layer        -> LastLayer.features

    Differs from the paper: which samples leave is a choice of this library.

    Two classes, one feature that is 0: the value is the norm of the error. The better half of the
    new samples (positions 2 and 3) replaces the worse half of the held ones.

    >>> from thalweg.memory import make_context
    >>> errors = np.array([[-0.5, 0.5], [-0.1, 0.1], [-0.9, 0.9], [-0.2, 0.2]])
    >>> last_layer = LastLayer(errors, features=np.zeros((4, 1)))
    >>> context = make_context(capacity=2, held=2, num_new=2, last_layer=last_layer)
    >>> Importance(budget=0.5).keep(None, context, np.random.default_rng(0))[1].tolist()
    [0, 2]
    """

    budget: float = 0.5
    """Largest share of the memory that one tick may renew."""
    outlier: float | None = None
    """Reject new samples whose value exceeds this multiple of the mean; none: reject no sample."""

    def __post_init__(self) -> None:
        check_ranges(self, budget="(0, 1]", outlier="(0, inf) or none")

    @property
    def probed_model(self) -> Literal["current"]:
        return "current"

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, context: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        norms = gradient_norms(require_last_layer(context, self))
        held, new = norms[: context.held], norms[context.held :]
        best = np.argsort(-new, kind="stable")
        if self.outlier is not None and len(new):
            best = best[new[best] <= self.outlier * new.mean()]
        free = context.capacity - context.held
        allowed = max(round_count(self.budget * context.capacity, None), free)
        entering = best[:allowed]
        if len(entering) < min(free, context.num_new):  # fill free slots even with outliers
            entering = np.argsort(-new, kind="stable")[:free]
        leaving = np.argsort(held, kind="stable")[: max(len(entering) - free, 0)]
        return None, replace_samples(context.held, leaving, entering)


def require_last_layer(context: MemoryContext, policy: object) -> LastLayer:
    """Return `context.last_layer`, or raise a `ConfigError` that names the policy."""
    if context.last_layer is None:
        raise ConfigError(
            f"{type(policy).__name__} needs context.last_layer, which is None; run the policy in a "
            "federation, or pass last_layer to memory.make_context."
        )
    return context.last_layer


def gradient_norms(last_layer: LastLayer) -> Floats:
    """Return (n,) the norm of each sample's gradient in the last layer, bias included.

    >>> errors = np.array([[-0.33475904, 0.24472847, 0.09003057]])
    >>> float(gradient_norms(LastLayer(errors, np.array([[1.0, 2.0]])))[0].round(6))
    1.039407
    """
    errors, features = (part.astype(np.float64) for part in last_layer)
    norms: Floats = np.sqrt((errors**2).sum(1) * ((features**2).sum(1) + 1))
    return norms


def replace_samples(held: int, leaving: Ints, entering: Ints) -> Ints:
    """Return the positions to keep after new samples replace held ones.

    The first ``len(leaving)`` of the entering samples take the slots of the leaving ones; the rest
    is appended, in free slots.

    >>> replace_samples(held=3, leaving=np.array([1]), entering=np.array([2, 0])).tolist()
    [0, 5, 2, 3]
    """
    kept = np.arange(held)
    kept[leaving] = held + entering[: len(leaving)]
    return np.concatenate([kept, held + entering[len(leaving) :]])
