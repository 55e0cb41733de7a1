"""k-means of points with missing rows."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Floats, Ints
from thalweg.theory.prototypes import row_distances

MAX_SWEEPS = 100


def masked_kmeans(points: Floats, num_clusters: int, seed: int, restarts: int) -> Ints:
    """(K,) cluster of each point (K, R, O); rows of nan are missing.

    Lloyd's algorithm with the distance of `row_distances`; a centre has the rows that at least one
    member has, each the mean of the members' rows. The best of several k-means++ initialisations by
    sum of squared distances is returned.
    """
    rng = np.random.default_rng(seed)
    best, least = np.zeros(len(points), dtype=np.int64), np.inf
    for _ in range(restarts):
        member_of, total = _run_lloyd(points, _init_centres(points, num_clusters, rng))
        if total < least:
            best, least = member_of, total
    return best


def mean_present(points: Floats) -> Floats:
    """(...) mean of points (K, ...) over values that are not nan; nan where all are."""
    has = ~np.isnan(points)
    number = has.sum(axis=0)
    mean = np.full(points.shape[1:], np.nan)
    np.divide(np.where(has, points, 0.0).sum(axis=0), number, out=mean, where=number > 0)
    return mean


def _run_lloyd(points: Floats, centres: Floats) -> tuple[Ints, float]:
    member_of = np.full(len(points), -1, dtype=np.int64)
    for _ in range(MAX_SWEEPS):
        distances = row_distances(points, centres)
        nearest: Ints = distances.argmin(axis=1)
        _fill_empty(nearest, distances)
        if (nearest == member_of).all():
            break
        member_of = nearest
        centres = np.stack([mean_present(points[member_of == c]) for c in range(len(centres))])
    own = row_distances(points, centres)[np.arange(len(points)), member_of]
    return member_of, float((own**2).sum())


def _fill_empty(nearest: Ints, distances: Floats) -> None:
    """Give an empty cluster the point that is farthest from the centre of a larger cluster."""
    own = distances[np.arange(len(nearest)), nearest]
    for c in range(distances.shape[1]):
        if not (nearest == c).any():
            spare = np.bincount(nearest, minlength=distances.shape[1])[nearest] > 1
            farthest = int(np.where(spare, own, -1.0).argmax())
            nearest[farthest], own[farthest] = c, 0.0


def _init_centres(points: Floats, num_clusters: int, rng: np.random.Generator) -> Floats:
    """k-means++: draw points in proportion to the squared distance from earlier centres."""
    chosen = [int(rng.integers(len(points)))]
    while len(chosen) < num_clusters:
        square = row_distances(points, points[chosen]).min(axis=1) ** 2
        square[chosen] = 0.0
        if square.sum() == 0:  # all remaining points equal a centre
            square = np.ones(len(points))
            square[chosen] = 0.0
        chosen.append(int(rng.choice(len(points), p=square / square.sum())))
    return points[chosen]
