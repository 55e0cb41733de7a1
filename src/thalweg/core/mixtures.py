"""The mixtures of models of all clients, of which few have models of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class Mixtures:
    """The weight of each model at each client; rows of weights sum to one.

    The first J models have a weight for each client. A further model has one only for the clients
    of its entries, usually one client, so that clients without own models cost nothing. Entries
    are sorted by client and model, and have positive weights.

    >>> mixtures = Mixtures(np.array([[0.25], [1.0]]), np.array([0]), np.array([1]),
    ...                     np.array([0.75]), num_models=2)
    >>> mixtures.get_rows([0, 1]).tolist()
    [[0.25, 0.75], [1.0, 0.0]]
    """

    shared: Floats  # (N, J)
    clients: Ints  # (E,)
    models: Ints  # (E,) from J on
    weights: Floats  # (E,)
    num_models: int

    @classmethod
    def from_rows(cls, rows: Floats) -> Mixtures:
        """Return mixtures without own models; rows (N, models)."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(rows, nothing, nothing, np.empty(0), rows.shape[1])

    @classmethod
    def from_entries(
        cls, shared: Floats, entries: Iterable[tuple[int, int, float]], num_models: int
    ) -> Mixtures:
        """Return mixtures with entries (client, model, weight) in any order, without those of 0.

        >>> Mixtures.from_entries(np.array([[0.5], [1.0]]), [(0, 1, 0.5), (1, 2, 0.0)], 3).models
        array([1])
        """
        found = sorted(each for each in entries if each[2] > 0)
        clients, models, weights = zip(*found, strict=True) if found else ((), (), ())
        return cls(
            shared,
            np.array(clients, dtype=np.int64),
            np.array(models, dtype=np.int64),
            np.array(weights, dtype=np.float64),
            num_models,
        )

    def __len__(self) -> int:
        return len(self.shared)

    def get_rows(self, clients: Sequence[int] | Ints) -> Floats:
        """Return (n, models) the weights of all models at n clients."""
        chosen = self.take(np.asarray(clients, dtype=np.int64))
        rows = np.zeros((len(chosen), self.num_models))
        rows[:, : self.shared.shape[1]] = chosen.shared
        rows[chosen.clients, chosen.models] = chosen.weights
        return rows

    def take(self, clients: Ints) -> Mixtures:
        """Return the mixtures of n different clients, which are numbered from 0 to n - 1."""
        place = np.full(len(self), -1)
        place[clients] = np.arange(len(clients))
        kept = np.flatnonzero(place[self.clients] >= 0)
        kept = kept[np.argsort(place[self.clients[kept]], kind="stable")]
        return Mixtures(
            self.shared[clients],
            place[self.clients[kept]],
            self.models[kept],
            self.weights[kept],
            self.num_models,
        )

    def find_main_models(self) -> Ints:
        """Return (N,) the model with the largest weight at each client; of equal ones the first."""
        main, highest = np.zeros(len(self), dtype=np.int64), np.zeros(len(self))
        if self.shared.shape[1]:
            main, highest = self.shared.argmax(axis=1), self.shared.max(axis=1)
        order = np.lexsort((self.models, -self.weights, self.clients))
        clients, first = np.unique(self.clients[order], return_index=True)
        models, weights = self.models[order][first], self.weights[order][first]
        is_higher = weights > highest[clients]
        main[clients[is_higher]] = models[is_higher]
        return main

    def equal(self, row: Floats) -> npt.NDArray[np.bool_]:
        """Return (N,) which clients have the mixture `row` (models,)."""
        num_shared = self.shared.shape[1]
        num_own = np.bincount(self.clients, minlength=len(self))
        is_same = self.weights == row[self.models]
        num_same = np.bincount(self.clients[is_same], minlength=len(self))
        has_own = (num_own == num_same) & (num_own == np.count_nonzero(row[num_shared:]))
        return np.asarray((self.shared == row[:num_shared]).all(axis=1) & has_own)

    def mean(self, chosen: npt.NDArray[np.bool_]) -> Floats:
        """Return (models,) the mean mixture of the clients that are chosen (N,)."""
        if not len(self.clients):
            found: Floats = self.shared[chosen].mean(axis=0)
            return found
        # Weights are added in the order of the clients, as in a sum over all columns at once.
        is_mine = chosen[self.clients]
        total = np.bincount(self.models[is_mine], self.weights[is_mine], self.num_models)
        for model, column in enumerate(self.shared[chosen].T):
            total[model] = np.bincount(np.zeros(len(column), dtype=np.int64), column)[0]
        return np.asarray(total / np.count_nonzero(chosen))

    def rank(self, views: Ints) -> Ints:
        """Return (N,) the rank of each client's view (N,) and mixture; equal ones have equal ranks.

        The ranks are those of the rows [view, weight of model 0, weight of model 1, ...] in
        lexicographic order.

        >>> Mixtures.from_rows(np.array([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])).rank(np.zeros(3))
        array([1, 0, 1])
        """
        ranks = rank_rows([views, *self.shared.T])
        if not len(self.clients):
            return ranks
        # Of two clients with equal shared weights, the one with the lower own model is later.
        clients, first, count = np.unique(self.clients, return_index=True, return_counts=True)
        columns = [ranks[clients]]
        for number in range(int(count.max())):
            has_one = count > number
            place = np.where(has_one, first + number, 0)
            columns.append(np.where(has_one, -self.models[place], -self.num_models))
            columns.append(np.where(has_one, self.weights[place], 0.0))
        own = np.zeros(len(self), dtype=np.int64)
        own[clients] = rank_rows(columns) + 1
        return rank_rows([ranks, own])


def rank_rows(columns: Sequence[npt.NDArray[np.generic]]) -> Ints:
    """Return (n,) the rank of each row of columns (n,) in lexicographic order.

    >>> rank_rows([np.array([1, 0, 1, 1]), np.array([0.5, 0.1, 0.2, 0.5])])
    array([2, 0, 1, 2])
    """
    ranks = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        if not len(column) or (column == column[0]).all():
            continue
        values, codes = np.unique(column, return_inverse=True)
        _, ranks = np.unique(ranks * len(values) + codes, return_inverse=True)
    return ranks
