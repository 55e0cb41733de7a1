"""What a robust rule promises: hostile updates are made harmless before a server rule sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from thalweg.core.types import Floats, Floats32


class CombinedUpdates(NamedTuple):
    """What is left of the updates of one model, for the server rule."""

    deltas: Floats32  # (n, P) no rows: the model stays as it is
    weights: Floats  # (n,)
    extra_metrics: Mapping[
        str, float
    ] = {}  # counts for the metrics; those of several models are added up


class Robust(Protocol):
    """Stands between the weights and the server rule. Any object of this shape will do.

    Pure: what comes of updates depends on them and their weights alone.
    """

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        """Updates (K, P) and weights (K,), K at least one; the sum of the weights shall stay what it is."""
        ...


def rule_weights(weights: Floats, weighted: bool) -> Floats:
    """(K,) what each update counts for a rule: as the recipe says, or all the same but for what counts nothing."""
    return weights if weighted else (weights > 0).astype(np.float64)


def single_update(
    row: Floats32, weights: Floats, extra_metrics: Mapping[str, float] | None = None
) -> CombinedUpdates:
    """One row (P,) in the place of all."""
    return CombinedUpdates(row[None], np.array([weights.sum()]), extra_metrics or {})


def no_updates(
    deltas: Floats32, weights: Floats, extra_metrics: Mapping[str, float] | None = None
) -> CombinedUpdates:
    """No update at all."""
    return CombinedUpdates(deltas[:0], weights[:0], extra_metrics or {})
