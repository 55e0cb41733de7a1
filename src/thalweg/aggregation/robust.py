"""Robust rules: limit the influence of hostile or faulty updates before the server rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.theory import clip_rows, row_norms, trimmed_mean, weighted_median


class CombinedUpdates(NamedTuple):
    """The output of a robust rule for one model, and the input of the server rule."""

    deltas: Floats32  # (n, P) no rows: the model does not change
    weights: Floats  # (n,)
    extra_metrics: Mapping[str, float] = {}  # counts; those of several models are added up


class Robust(Protocol):
    """Combines or filters the updates of one model, between the weights and the server rule.

    Implement `combine`; no base class is needed. The result must depend on the arguments only.
    """

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        """Take updates (K, P) and weights (K,), K >= 1, and return n updates with weights.

        Keep the sum of the weights, unless no update is returned (n = 0).
        """
        ...


@dataclass(frozen=True)
class Median:
    r"""Replaces the updates by their median, coordinate by coordinate.

    .. math::  \Delta_j = \mathrm{median}_k\, \Delta_{k,j}

    As long as fewer than half of the clients are hostile, each coordinate lies between two honest
    values. What only a minority of the clients learns is lost.

    Symbols, Yin et al. 2018 -> here: :math:`\Delta_{k,j}` -> deltas[k, j]. Differs from the paper:
    it is applied to updates, not to gradients. The median of two updates is their mean.

    >>> deltas = np.array([[1, 0], [2, 1], [1000, -1000]], dtype=np.float32)
    >>> left = Median().combine(deltas, np.full(3, 0.25))
    >>> left.deltas.tolist(), left.weights.tolist()
    ([[2.0, 0.0]], [0.75])
    """

    weighted: bool = False
    """Whether updates count by the recipe's weights. These mostly follow from numbers that clients
    report, so a hostile client can raise its own; otherwise all updates count the same."""

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        if not weights.any():
            return no_updates(deltas, weights)
        return single_update(weighted_median(deltas, rule_weights(weights, self.weighted)), weights)


@dataclass(frozen=True)
class TrimmedMean:
    r"""Replaces the updates by their mean without the extremes, coordinate by coordinate.

    The :math:`\lceil \beta K \rceil` largest and as many of the smallest of K values are removed
    in each coordinate:

    .. math::  \Delta_j = \frac{1}{K - 2 \lceil \beta K \rceil}
               \sum_{k = \lceil \beta K \rceil + 1}^{K - \lceil \beta K \rceil} \Delta_{(k),j}

    A share of :math:`\beta` hostile clients is therefore harmless. If no value is left, as with
    two updates, the result is the median.

    Symbols, Yin et al. 2018 -> here: :math:`\beta` -> share; :math:`\Delta_{(k),j}` is the k-th
    smallest value of coordinate j. Differs from the paper: :math:`\beta K` need not be an integer.

    >>> deltas = np.array([[1], [2], [3], [4], [1000]], dtype=np.float32)
    >>> TrimmedMean(share=0.2).combine(deltas, np.full(5, 0.2)).deltas.tolist()  # of 2, 3 and 4
    [[3.0]]
    """

    share: float = 0.2
    """Share of the updates (or of their weight) that is removed at each end."""
    weighted: bool = False
    """Whether updates count by the recipe's weights, which mostly follow from client reports."""

    def __post_init__(self) -> None:
        check_ranges(self, share="[0, 0.5)")

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        if not weights.any():
            return no_updates(deltas, weights)
        mean = trimmed_mean(deltas, rule_weights(weights, self.weighted), self.share)
        return single_update(mean, weights)


@dataclass(frozen=True)
class NormClip:
    r"""Shortens updates to a maximum length and keeps their direction.

    .. math::  \Delta_k \leftarrow \Delta_k \min(1, c / \lVert \Delta_k \rVert)

    The bound c is fixed, or a multiple of the median length in the round, which fewer than half of
    the clients cannot raise at will; of two middle lengths the smaller one counts, so that this
    holds for two clients too. Updates of length 0 are not counted. A hostile update still counts,
    but no more than an honest one of that length. This is enough against accidents and single large
    updates, and little against clients that agree on a direction.

    Symbols: c -> bound, or `factor` times the median length. The number of shortened updates is
    the metric `clipped`.

    >>> deltas = np.array([[3, 4], [0, 1]], dtype=np.float32)  # lengths 5 and 1
    >>> NormClip(bound=2.5).combine(deltas, np.full(2, 0.5)).deltas.tolist()
    [[1.5, 2.0], [0.0, 1.0]]
    """

    merges_updates = False

    bound: float | None = None
    """Maximum length of an update; none: `factor` times the median length."""
    factor: float = 1.0
    """Multiple of the median length, if there is no bound."""

    def __post_init__(self) -> None:
        check_ranges(self, bound="(0, inf) or none", factor="[1, inf)")

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        bound = self.bound
        if bound is None:
            norms = np.sort(row_norms(deltas))
            norms = norms[norms > 0]
            bound = self.factor * float(norms[(len(norms) - 1) // 2]) if len(norms) else 0.0
        rows, clipped = clip_rows(deltas, bound)
        return CombinedUpdates(rows, weights, {"clipped": len(clipped)} if len(clipped) else {})


def rule_weights(weights: Floats, weighted: bool) -> Floats:
    """Return (K,) the recipe's weights, or one for each update with a positive weight."""
    return weights if weighted else (weights > 0).astype(np.float64)


def single_update(
    row: Floats32, weights: Floats, extra_metrics: Mapping[str, float] | None = None
) -> CombinedUpdates:
    """Return one update (P,) with the weight of all."""
    return CombinedUpdates(row[None], np.array([weights.sum()]), extra_metrics or {})


def no_updates(
    deltas: Floats32, weights: Floats, extra_metrics: Mapping[str, float] | None = None
) -> CombinedUpdates:
    """Return no update, so that the model does not change."""
    return CombinedUpdates(deltas[:0], weights[:0], extra_metrics or {})
