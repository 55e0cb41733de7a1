"""Which models are alike: how far they are apart, and complete linkage."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Floats


def distances(losses: Floats) -> Floats:
    """(m, m) how much worse each of two models is on the other's data; L[i, j]: model i on data j.

    >>> L = np.array([[0.2, 1.0, 0.5], [0.9, 0.3, 0.8], [0.4, 0.7, 0.25]])
    >>> distances(L).round(6).tolist()
    [[0.0, 0.8, 0.3], [0.8, 0.0, 0.5], [0.3, 0.5, 0.0]]
    """
    own = np.diag(losses)
    worse = losses - own[:, None]  # L_ij - L_ii
    return np.maximum(np.maximum(worse, worse.T), 0.0)


def agglomerate(distance: Floats, threshold: float) -> list[list[int]]:
    """Groups of at least two, by complete linkage: merge the nearest while nearer than `threshold`.

    >>> L = np.array([[0.2, 1.0, 0.5], [0.9, 0.3, 0.8], [0.4, 0.7, 0.25]])
    >>> agglomerate(distances(L), 0.4)
    [[0, 2]]
    """
    groups = [[place] for place in range(len(distance))]
    D = distance.copy()
    np.fill_diagonal(D, np.inf)
    while len(groups) > 1:
        i, j = sorted(divmod(int(np.argmin(D)), len(D)))
        if not D[i, j] < threshold:
            break
        groups[i] = sorted(groups[i] + groups[j])
        D[i] = D[:, i] = np.maximum(D[i], D[j])
        D[i, i] = np.inf
        D = np.delete(np.delete(D, j, axis=0), j, axis=1)
        del groups[j]
    return [group for group in groups if len(group) > 1]
