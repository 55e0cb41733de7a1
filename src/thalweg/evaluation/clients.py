"""Accuracy of a model at every client, on data distributed like the client's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints

Bools = npt.NDArray[np.bool_]


class LocalMixes:
    """Measures models at clients whose data differ in their class mix only; mixes (N, C)."""

    def __init__(self, mixes: Floats) -> None:
        self._mixes = mixes
        self._tested = np.empty(0, dtype=bool)  # (C,) classes in the test set
        self._known, self._mass = mixes, np.empty(0)  # mixes of these classes, and their sums

    def measure(self, right: Bools, labels: Ints, clients: Ints) -> Floats:
        """Return the accuracy at some clients, as `accuracies_by_mix`.

        The product is that of all clients, because BLAS may give other bits for a part of the
        rows. The rest is computed once, or for these clients only.
        """
        num_classes = self._mixes.shape[1]
        count = np.bincount(labels, minlength=num_classes)  # (C,)
        hits = np.bincount(labels, weights=right, minlength=num_classes)
        per_class = np.divide(hits, count, out=np.zeros(num_classes), where=count > 0)
        if not np.array_equal(count > 0, self._tested):
            self._tested = count > 0
            self._known = self._mixes * self._tested
            self._mass = self._known.sum(axis=1)  # (N,)
        mass, hit = self._mass[clients], (self._known @ per_class)[clients]
        found: Floats = np.divide(hit, mass, out=np.full(len(clients), np.nan), where=mass > 0)
        return found


def accuracies_by_mix(right: Bools, labels: Ints, mixes: Floats) -> Floats:
    r"""(N,) accuracy at clients whose data differ in their class mix only.

    :math:`\mathrm{acc}_n = \sum_c m_{n,c}\,\mathrm{acc}_c` with the accuracy per class on the whole
    test set. This is the expected accuracy on a test set of the client's own, without splitting the
    samples among clients. Classes that the test set lacks are left out; nan if a client has no
    other.

    Shapes: right, labels (n,); mixes (N, C).

    >>> right, labels = np.array([True, False, True]), np.array([0, 0, 1])
    >>> accuracies_by_mix(right, labels, np.array([[1.0, 0.0], [0.5, 0.5]])).tolist()
    [0.5, 0.75]
    """
    return LocalMixes(mixes).measure(right, labels, np.arange(len(mixes)))


def accuracies_by_owner(right: Bools, owner: Ints, num_clients: int) -> Floats:
    """(N,) accuracy on the test samples (n,) that belong to each client; nan if it has none.

    >>> right = np.array([True, False, True])
    >>> accuracies_by_owner(right, np.array([0, 0, 2]), 3).tolist()
    [0.5, nan, 1.0]
    """
    count = np.bincount(owner, minlength=num_clients)
    hits = np.bincount(owner, weights=right, minlength=num_clients)
    found: Floats = np.divide(hits, count, out=np.full(num_clients, np.nan), where=count > 0)
    return found
