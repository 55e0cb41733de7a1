"""Number of concepts among the clients: k-means and silhouettes of their prototypes (NCD)."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Ints
from thalweg.theory.inputs import as_array, count, number
from thalweg.theory.masked_kmeans import masked_kmeans, mean_present
from thalweg.theory.prototypes import row_distances

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

RESTARTS = 10


class Clustering(NamedTuple):
    """Clusters of points, numbered in the order of their first members."""

    member_of: Ints  # (K,) the cluster of each point
    centres: Floats  # (C, ...) mean of each cluster; nan where no member has a value
    scores: Floats  # (max_clusters + 1,) mean silhouette by number of clusters; nan: not tried

    @property
    def size(self) -> int:
        """Number of clusters."""
        return len(self.centres)


def count_clusters(
    points: npt.ArrayLike,
    max_clusters: int = 9,
    single_cluster_threshold: float | None = None,
    seed: int = 0,
) -> Clustering:
    r"""Cluster points (K, ...) with the number of clusters that fits best.

    For :math:`c = 2 \ldots \min(M, K - 1)` run k-means with several restarts and choose the c with
    the largest mean silhouette (ties: the smallest c):

    .. math::  s_k = \frac{b_k - a_k}{\max(a_k, b_k)}, \qquad 0 \text{ for a cluster of one}

    :math:`a_k` is the mean distance to the other members of its cluster, :math:`b_k` the smallest
    mean distance to another cluster. Values of c above the number of different points are skipped.
    If none remains (one or two points, or all equal), there is one cluster; the same holds if the
    best silhouette is below `single_cluster_threshold`. Without that threshold, one cluster is
    never found among different points.

    Points with nan, rows (K, R, O), are compared over the rows that both have; see `row_distances`.

    Symbols, FedDAA, Algorithm 1 -> here
        :math:`P_k^t`  -> points
        :math:`M`      -> max_clusters
        :math:`P_c^t`  -> Clustering.centres

    >>> found = count_clusters([[0, 0], [0, 1], [4, 0], [4, 1]])
    >>> found.size, found.member_of.tolist(), round(float(found.scores[2]), 6)
    (2, [0, 0, 1, 1], 0.753789)
    """
    values = _points(points)
    most = count(max_clusters, "max_clusters")
    scores = np.full(most + 1, np.nan)
    best, score = np.zeros(len(values), dtype=np.int64), -np.inf
    distances = row_distances(_as_rows(values), _as_rows(values))
    for c in range(2, min(most, len(values) - 1, _count_distinct(values)) + 1):
        member_of = cluster(values, c, seed).member_of
        if len(np.unique(member_of)) == c:  # else the points are numerically equal
            scores[c] = silhouettes(distances, member_of).mean()
            if scores[c] > score:
                best, score = member_of, float(scores[c])
    if single_cluster_threshold is not None and score < number(
        single_cluster_threshold, "single_cluster_threshold"
    ):
        best = np.zeros_like(best)
    return Clustering(best, _centres(values, best), scores)


def cluster(points: npt.ArrayLike, num_clusters: int, seed: int = 0) -> Clustering:
    """Cluster points (K, ...) with k-means; fewer clusters if fewer points differ.

    >>> cluster([[0, 0], [0, 1], [4, 0], [4, 1]], 2).centres.tolist()
    [[0.0, 0.5], [4.0, 0.5]]
    """
    values = _points(points)
    c = min(count(num_clusters, "num_clusters"), _count_distinct(values))
    if c == 1:
        member_of = np.zeros(len(values), dtype=np.int64)
    elif np.isnan(values).any():
        member_of = masked_kmeans(_as_rows(values), c, seed, RESTARTS)
    else:
        member_of = _kmeans(values.reshape(len(values), -1), c, seed)
    member_of = _renumber(member_of)
    return Clustering(member_of, _centres(values, member_of), np.full(c + 1, np.nan))


def silhouettes(distances: Floats, member_of: Ints) -> Floats:
    """(K,) silhouette of each point, from -1 to 1.

    `distances` (K, K) are those between points; there must be at least two clusters and fewer than
    points.

    >>> square = np.array([[0, 0], [0, 1], [4, 0], [4, 1.0]])
    >>> apart = np.linalg.norm(square[:, None] - square[None], axis=2)
    >>> silhouettes(apart, np.array([0, 1, 2, 2])).tolist()
    [0.0, 0.0, 0.75, 0.75]
    """
    from sklearn.metrics import silhouette_samples

    return np.asarray(silhouette_samples(distances, member_of, metric="precomputed"), np.float64)


def _kmeans(values: Floats, num_clusters: int, seed: int) -> Ints:
    """scikit-learn's k-means on one thread, so that results do not depend on the cores."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with _find_thread_pools().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # nearly equal points are handled here
        fitted = KMeans(num_clusters, n_init=RESTARTS, random_state=seed).fit(values)
    return np.asarray(fitted.labels_, dtype=np.int64)


@cache
def _find_thread_pools() -> ThreadpoolController:
    """Return the thread pools of this process; finding them takes as long as a small k-means."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _centres(values: Floats, member_of: Ints) -> Floats:
    return np.stack([mean_present(values[member_of == c]) for c in range(member_of.max() + 1)])


def _renumber(member_of: Ints) -> Ints:
    """Number clusters in the order of their first members."""
    _, first, inverse = np.unique(member_of, return_index=True, return_inverse=True)
    order: Ints = np.argsort(np.argsort(first))[inverse]
    return order


def _count_distinct(values: Floats) -> int:
    return len(np.unique(values.reshape(len(values), -1), axis=0))


def _as_rows(values: Floats) -> Floats:
    """Points as (K, R, O), with rows that may be missing."""
    return values if values.ndim == 3 else values.reshape(len(values), 1, -1)


def _points(points: npt.ArrayLike) -> Floats:
    values = as_array(points, "points")
    if values.ndim < 2 or len(values) == 0 or np.isinf(values).any():
        raise ConfigError(
            f"points must contain at least one point with finite numbers, got shape {values.shape}."
        )
    if values.ndim != 3 and np.isnan(values).any():
        raise ConfigError(
            "missing values must be whole rows of a prototype: points with nan are (clients, "
            f"classes, outputs), got shape {values.shape}."
        )
    return values
