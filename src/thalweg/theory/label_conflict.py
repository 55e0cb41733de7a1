"""Contradictory labels of two groups of clients, from their prototypes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints
from thalweg.theory.inputs import as_array

MIN_COMMON = 2  # classes that both must have


def label_conflict(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    r"""Share of the classes whose prototype is nearer to another class of the other group.

    .. math::  q = \frac{1}{|J|} \sum_{r \in J}
        [\arg\min_{s \in J} \lVert P[r] - Q[s] \rVert \neq r], \qquad
        J = \text{classes without nan in either}

    The mean of both directions, :math:`q(P, Q)` and :math:`q(Q, P)`. Groups whose inputs or label
    frequencies differ have a small conflict as long as equal labels stand for similar inputs. If
    one group has another labelling, the row of class r is near the row of the class which has
    these inputs in the other group. This holds for any model that computes both prototypes, also
    for one with random parameters, and for one that was trained on both labellings. With fewer
    than two common classes the conflict is 0; ties are no conflict.

    The labels of two of three classes are exchanged:

    >>> round(label_conflict([[0.0], [4.0], [9.0]], [[4.5], [0.5], [9.5]]), 6)
    0.666667
    >>> label_conflict([[0.0], [4.0], [9.0]], [[1.0], [5.0], [9.5]])
    0.0
    """
    p, q = as_array(first, "first"), as_array(second, "second")
    common = ~(np.isnan(p).any(axis=1) | np.isnan(q).any(axis=1))
    if common.sum() < MIN_COMMON:
        return 0.0
    distances = np.linalg.norm(p[common][:, None] - q[common][None], axis=2)
    own = distances.diagonal()
    number = sum(np.count_nonzero(own > distances.min(axis=axis)) / len(own) for axis in (0, 1))
    return float(number / 2)


def differ_significantly(
    first: npt.ArrayLike, second: npt.ArrayLike, errors: npt.ArrayLike, level: float
) -> bool:
    r"""Whether two groups of prototypes (R, O) differ by more than chance.

    .. math::
        \sum_{r \in J} \frac{\lVert P[r] - Q[r] \rVert^2}{e_r^2} > \chi^2_{|J|}(1 - \text{level})

    `errors` (R,) are the standard errors of the differences, with the variances of all O outputs
    together. The test has one degree of freedom per class; outputs that vary in several directions
    make it reject less often. J are the classes without nan; with none the result is False.

    Both differences are three standard errors: 18 is above 13.8, the limit for two classes.

    >>> differ_significantly([[0.0], [4.0]], [[3.0], [1.0]], [1.0, 1.0], level=0.001)
    True
    >>> differ_significantly([[0.0], [4.0]], [[3.0], [1.0]], [2.0, 2.0], level=0.001)
    False
    """
    from scipy.special import chdtri

    squares = ((as_array(first, "first") - as_array(second, "second")) ** 2).sum(axis=1)
    variances = as_array(errors, "errors") ** 2
    known = ~(np.isnan(squares) | np.isnan(variances))
    if not known.any():
        return False
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(squares[known] > 0, squares[known] / variances[known], 0.0)
    return bool(ratios.sum() > chdtri(int(known.sum()), level))


def mean_errors(errors: Floats) -> Floats:
    r"""(R,) standard errors of means of prototypes, from (K, R) errors; nan: missing classes.

    .. math::  e_r = \frac 1 K \sqrt{\textstyle\sum_k e_{k,r}^2}

    Clients whose prototype is missing, or has no known error, are left out.

    >>> mean_errors(np.array([[3.0, 1.0], [4.0, np.nan]])).tolist()
    [2.5, 1.0]
    """
    is_known = ~np.isnan(errors)
    number = is_known.sum(axis=0)
    squares = np.where(is_known, errors, 0.0) ** 2
    found = np.full(errors.shape[1:], np.nan)
    np.divide(np.sqrt(squares.sum(axis=0)), number, out=found, where=number > 0)
    return found


def merge_agreeing(
    points: Floats,
    member_of: Ints,
    max_conflict: float,
    compatible: npt.NDArray[np.bool_],
    errors: Floats | None = None,
    level: float = 0.001,
) -> Ints:
    """Merge clusters of prototypes whose labels agree; return (K,) the group of each point.

    `points` (K, R, O) are prototypes with nan for missing classes, `member_of` (K,) their
    clusters. The two clusters with the smallest conflict of their mean prototypes are merged while
    it is at most `max_conflict`. Clusters that are `compatible` (C, C) have no conflict. With the
    standard `errors` (K, R) of all prototypes, neither have clusters that do not differ at the
    significance `level`; prototypes whose error is nan are left out of the means. Groups are
    numbered in the order of their first members.

    The labels of the third client are exchanged; the other two differ in their inputs only:

    >>> points = np.array([[[0.0], [4.0]], [[1.0], [5.0]], [[4.0], [0.0]]])
    >>> merge_agreeing(points, np.array([0, 1, 2]), 0.5, np.eye(3, dtype=bool)).tolist()
    [0, 0, 1]
    """
    from thalweg.theory.masked_kmeans import mean_present

    groups = [[c] for c in np.unique(member_of).tolist()]
    if errors is not None:  # a mean of other prototypes would have a larger error than is known
        points = np.where(np.isnan(errors)[:, :, None], np.nan, points)

    def conflict(one: list[int], other: list[int]) -> float:
        if compatible[np.ix_(one, other)].all():
            return 0.0
        rows = [np.isin(member_of, group) for group in (one, other)]
        first, second = (mean_present(points[mine]) for mine in rows)
        if errors is not None:
            both = np.hypot(*(mean_errors(errors[mine]) for mine in rows))
            if not differ_significantly(first, second, both, level):
                return 0.0
        return label_conflict(first, second)

    while len(groups) > 1:
        pairs = [(i, j) for j in range(len(groups)) for i in range(j)]
        least, i, j = min((conflict(groups[i], groups[j]), i, j) for i, j in pairs)
        if least > max_conflict:
            break
        groups[i] += groups.pop(j)
    group_of = np.empty(len(member_of), dtype=np.int64)
    for number, group in enumerate(sorted(groups, key=min)):
        group_of[np.isin(member_of, group)] = number
    return group_of
