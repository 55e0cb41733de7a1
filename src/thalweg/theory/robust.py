r"""Robust means of K updates of P numbers each, some of which may be adversarial.

Symbols -> here
    :math:`\Delta_k`       -> values[k], (P,)
    :math:`p_k`            -> weights[k], non-negative
    :math:`\beta`          -> share, trimmed at either end
    f, m of Krum           -> num_hostile, num_kept

All sums are in double precision, because the square of a finite update may overflow single
precision.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thalweg.core.types import Floats, Floats32, Ints

BlockReducer = Callable[[Floats, Floats], Floats]  # sorted columns (K, n) and their weights -> (n,)
BLOCK = 1 << 14  # number of columns that are sorted at a time
SLACK = 1e-9  # tolerance for sums of weights, relative to the total


def weighted_median(values: Floats32, weights: Floats) -> Floats32:
    r"""(P,) weighted median of every column; the mean of two values if both halve the weight.

    With equal weights it is the median.

    >>> column = np.array([[1.0], [2.0], [9.0]], dtype=np.float32)
    >>> weighted_median(column, np.ones(3)), weighted_median(column, np.array([1.0, 1.0, 2.0]))
    (array([2.], dtype=float32), array([5.5], dtype=float32))
    """
    return _reduce_blocks(values, weights, _median)


def trimmed_mean(values: Floats32, weights: Floats, share: float) -> Floats32:
    r"""(P,) mean of every column without at least `share` of the weight at either end.

    Values are removed as a whole: with equal weights the :math:`\lceil \beta K \rceil` smallest and
    as many of the largest. If nothing is left, the result is the median.

    >>> column = np.array([[1.0], [2.0], [4.0], [5.0], [1000.0]], dtype=np.float32)
    >>> trimmed_mean(column, np.ones(5), 0.2), trimmed_mean(column, np.ones(5), 0.4)
    (array([3.6666667], dtype=float32), array([4.], dtype=float32))
    """

    def of_block(ordered: Floats, counts: Floats) -> Floats:
        above = np.cumsum(counts, axis=0)  # up to and including each value
        total = above[-1]
        low, high = (share - SLACK) * total, (1 - share + SLACK) * total
        stays = np.where((above - counts >= low) & (above <= high), counts, 0.0)
        left = stays.sum(axis=0)
        mean = (stays * ordered).sum(axis=0) / np.where(left > 0, left, 1.0)
        return np.where(left > 0, mean, _median(ordered, counts))

    return _reduce_blocks(values, weights, of_block)


def row_norms(values: Floats32) -> Floats:
    """(K,) Euclidean norms of the rows.

    >>> row_norms(np.array([[3, 4], [1e30, 0]], dtype=np.float32)).tolist()
    [5.0, 1.0000000150474662e+30]
    """
    squares = np.zeros(len(values))
    for first in range(0, values.shape[1], BLOCK):
        block = values[:, first : first + BLOCK].astype(np.float64)
        squares += (block * block).sum(axis=1)
    return np.sqrt(squares)


def clip_rows(values: Floats32, bound: float) -> tuple[Floats32, Ints]:
    """Rows clipped to norm `bound`, and indices of the clipped rows (n,). Other rows are unchanged.

    >>> rows, cut = clip_rows(np.array([[3, 4], [0, 1]], dtype=np.float32), bound=2.5)
    >>> rows.tolist(), cut.tolist()
    ([[1.5, 2.0], [0.0, 1.0]], [0])
    """
    norms = row_norms(values)
    cut = np.flatnonzero(norms > bound)
    if len(cut) == 0:
        return values, cut
    rows = values.copy()
    for row in cut.tolist():  # one at a time to limit memory in double precision
        rows[row] = values[row].astype(np.float64) * (bound / norms[row])
    return rows, cut


def squared_distances(values: Floats32) -> Floats:
    """(K, K) squared distances between the rows, accurate to the rounding of each difference."""
    K, P = values.shape
    apart = np.zeros((K, K))
    for first in range(0, P, BLOCK):
        block = values[:, first : first + BLOCK].astype(np.float64)
        for k in range(K - 1):
            away = block[k + 1 :] - block[k]
            apart[k, k + 1 :] += (away * away).sum(axis=1)
    return apart + apart.T


def krum_scores(values: Floats32, num_hostile: int) -> Floats:
    r"""(K,) sum of squared distances of each update to its K - f - 2 nearest neighbours.

    Blanchard et al. 2017. Needs K > f + 2; f adversarial clients can be identified if K > 2 f + 2.

    >>> krum_scores(np.array([[0], [1], [2], [2], [100]], dtype=np.float32), num_hostile=1).tolist()
    [5.0, 2.0, 1.0, 1.0, 19208.0]
    """
    K = len(values)
    num_near = K - num_hostile - 2
    if num_near < 1:
        raise ValueError(f"Krum needs more than f + 2 updates, got {K} with f = {num_hostile}.")
    apart = squared_distances(values)
    np.fill_diagonal(apart, np.inf)
    scores: Floats = np.sort(apart, axis=1)[:, :num_near].sum(axis=1)
    return scores


def krum(values: Floats32, num_hostile: int, num_kept: int = 1) -> Ints:
    """(m,) updates with the smallest scores, ascending; ties go to the first. m > 1 is multi-Krum.

    >>> rows = np.array([[0], [1], [2], [2], [100]], dtype=np.float32)
    >>> krum(rows, num_hostile=1, num_kept=3).tolist()
    [1, 2, 3]
    """
    order = np.argsort(krum_scores(values, num_hostile), kind="stable")
    return np.sort(order[:num_kept])


def _median(ordered: Floats, counts: Floats) -> Floats:
    """(n,) median of sorted columns (K, n) with weights."""
    above = np.cumsum(counts, axis=0)
    half = above[-1] / 2
    slack = SLACK * above[-1]
    low = (above >= half - slack).argmax(axis=0)
    high = (above > half + slack).argmax(axis=0)
    columns = np.arange(ordered.shape[1])
    middle: Floats = ordered[low, columns] / 2 + ordered[high, columns] / 2
    return middle


def _reduce_blocks(values: Floats32, weights: Floats, of_block: BlockReducer) -> Floats32:
    """Reduce sorted columns block by block; rows with zero weight are ignored."""
    has_say = weights > 0
    values, weights = (values, weights) if has_say.all() else (values[has_say], weights[has_say])
    if len(values) == 0:
        raise ValueError("all updates have zero weight, so there is no median.")
    result = np.empty(values.shape[1], dtype=np.float32)
    for first in range(0, values.shape[1], BLOCK):
        block = values[:, first : first + BLOCK]
        order = np.argsort(block, axis=0, kind="stable")
        ordered = np.take_along_axis(block, order, axis=0).astype(np.float64)
        result[first : first + BLOCK] = of_block(ordered, weights[order])
    return result
