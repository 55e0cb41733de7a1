from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.aggregation.robust import CombinedUpdates
from thalweg.core.config import check_ranges
from thalweg.core.types import Floats, Floats32
from thalweg.theory import clip_rows, row_norms


@dataclass(frozen=True)
class NormClip:
    r"""No update may be longer than a bound: what is longer is shortened, and points where it did.

    .. math::  \Delta_k \leftarrow \Delta_k \min(1, c / \lVert \Delta_k \rVert)

    The bound is fixed, or a multiple of the median length in this round, which fewer than half of the clients
    cannot raise at will. A hostile update still counts, but no more than an honest one of that length: enough
    against accidents and lazy attacks, little against clients that agree on a direction.

    Symbols -> here: c -> bound; none: factor times the median of the lengths. Counted as `clip_rows` in the metrics.
    """

    bound: float | None = None
    """Largest length; none: as long as most."""
    factor: float = 1.0
    """Times the median length, if there is no bound."""

    def __post_init__(self) -> None:
        check_ranges(self, bound="(0, inf) or none", factor="[1, inf)")

    def combine(self, deltas: Floats32, weights: Floats) -> CombinedUpdates:
        bound = self.bound
        if bound is None:
            bound = self.factor * float(np.median(row_norms(deltas)))
        rows, cut = clip_rows(deltas, bound)
        return CombinedUpdates(rows, weights, {"clipped": len(cut)} if len(cut) else {})
