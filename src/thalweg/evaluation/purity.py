"""How well clusters agree with the truth, which only a simulation knows."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Ints


def purity(found: Ints, true: Ints) -> float:
    r"""Share of the clients whose concept is the commonest one in their cluster.

    .. math::  \frac 1 N \sum_c \max_m |\{k : \mathrm{found}_k = c, \mathrm{true}_k = m\}|

    One if no cluster holds two concepts; a cluster for every client is pure, too, so read it beside the number
    of clusters. nan without clients.

    Shapes: found, true (N,).

    >>> purity(np.array([0, 0, 0, 1]), np.array([5, 5, 7, 7]))
    0.75
    """
    if len(found) == 0:
        return float("nan")
    _, row = np.unique(found, return_inverse=True)
    _, column = np.unique(true, return_inverse=True)
    together = np.zeros((row.max() + 1, column.max() + 1), dtype=np.int64)
    np.add.at(together, (row, column), 1)
    return float(together.max(axis=1).sum() / len(found))
