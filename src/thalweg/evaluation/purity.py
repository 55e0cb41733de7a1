"""How well clusters and alarms agree with the truth, which only a simulation knows."""

from __future__ import annotations

from typing import NamedTuple

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


class Detection(NamedTuple):
    """Who was said to have drifted, against who did."""

    detected: int
    drifted: int
    both: int

    @property
    def precision(self) -> float | None:
        """Share of those detected who did drift; None: nobody was detected."""
        return self.both / self.detected if self.detected else None

    @property
    def recall(self) -> float | None:
        """Share of those who drifted that was detected; None: nobody drifted."""
        return self.both / self.drifted if self.drifted else None


def detection(detected: Ints, drifted: Ints) -> Detection:
    """Compare two lists of clients.

    The released code of FedDAA has the two names the wrong way round: it divides by those who drifted and
    calls that precision.

    >>> found = detection(np.array([1, 2, 3, 4]), np.array([2, 3, 9]))
    >>> found.precision, found.recall
    (0.5, 0.666...)
    """
    both = np.intersect1d(detected, drifted)
    return Detection(len(np.unique(detected)), len(np.unique(drifted)), len(both))
