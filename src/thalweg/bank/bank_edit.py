"""Banks in which each client belongs to one model: opening, merging and closing models."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg.bank.base import BankAssignment
from thalweg.core.types import Floats, Ints


class Clusters(NamedTuple):
    """The model of each client, and the history that decides about drift and merging."""

    member_of: Ints  # (N,) model of each client; -1: never surveyed
    previous: Floats  # (N,) the client's lowest cost in its last survey; nan: never surveyed
    isolated_for: Ints  # (models,) steps for which a model is still excluded from merging
    last_used: Ints  # (models,) round in which a model was last trained
    rnd: int


class BankEdit:
    """A mutable copy of the clusters, used while one round is assigned.

    >>> clusters = Clusters(
    ...     member_of=np.array([0, 0, 0]), previous=np.zeros(3),
    ...     isolated_for=np.array([0]), last_used=np.array([0]), rnd=0,
    ... )
    >>> edit = BankEdit(clusters, num_models=1)
    >>> edit.member_of[2] = edit.open_model(parent=0, max_models=10, isolation=1)
    >>> plan = edit.finish(cohort=np.array([0, 2]))
    >>> plan.mix.tolist(), plan.models.tolist()  # model 1 starts as a copy of model 0
    ([[1.0], [1.0]], [0, 1])
    """

    def __init__(self, state: Clusters, num_models: int, is_step_start: bool = True) -> None:
        self.member_of, self.previous = state.member_of.copy(), state.previous.copy()
        self.isolated_for = np.maximum(state.isolated_for - int(is_step_start), 0)
        self.last_used = state.last_used.copy()
        self.rnd = state.rnd + 1
        self.mix = np.eye(num_models)
        self.is_new = np.zeros(num_models, dtype=bool)

    def add_random_models(self, count: int) -> None:
        """Add `count` models with random parameters."""
        for _ in range(count):
            self._append(np.zeros(self.mix.shape[1]))
            self.is_new[-1] = True

    def open_model(self, parent: int | None, max_models: int, isolation: int) -> int | None:
        """Open a copy of model `parent` (None: a random model) and return its index.

        If there are `max_models` models, the least recently used model without clients is
        replaced; if every model has clients, no model is opened and None is returned.
        """
        row = np.zeros(self.mix.shape[1]) if parent is None else self.mix[parent]
        index = len(self.mix)
        if index >= max_models:
            unused = [m for m in range(index) if not (self.member_of == m).any()]
            if not unused:
                return None
            index = min(unused, key=lambda m: (self.last_used[m], m))
            self.mix[index] = row
        else:
            self._append(row)
        self.is_new[index], self.last_used[index] = True, self.rnd
        self.isolated_for[index] = isolation + 1 if isolation else 0
        return index

    def _append(self, row: Floats) -> None:
        self.mix = np.vstack([self.mix, row])
        self.is_new = np.append(self.is_new, False)
        self.isolated_for = np.append(self.isolated_for, 0)
        self.last_used = np.append(self.last_used, 0)

    def merge_models(self, models: list[int], weights: Floats) -> None:
        """Replace the first of these models by their weighted mean; it takes over all clients."""
        first, *others = models
        self.mix[first] = weights @ self.mix[models] / weights.sum()
        for other in others:
            self.member_of[self.member_of == other] = first
            self.last_used[other] = -1

    def finish(self, cohort: Ints) -> BankAssignment:
        """Close the models without clients (one model always stays) and return the assignment."""
        has_clients = np.bincount(self.member_of[self.member_of >= 0], minlength=len(self.mix)) > 0
        kept = np.flatnonzero(has_clients)
        if not len(kept):
            kept = np.array([0])
        new_index = np.full(len(self.mix), -1, dtype=np.int64)
        new_index[kept] = np.arange(len(kept))
        member_of = np.where(self.member_of >= 0, new_index[self.member_of], -1)
        state = Clusters(
            member_of, self.previous, self.isolated_for[kept], self.last_used[kept], self.rnd
        )
        return BankAssignment(state, self.mix[kept], self.is_new[kept], cohort, member_of[cohort])


def compute_shares(member_of: Ints, num_models: int) -> Floats:
    """Return (models,) the share of the clients of each model; equal if no client has a model.

    `member_of` (N,) is the model of each client; -1: none.

    >>> compute_shares(np.array([0, 1, 1, -1, 1]), num_models=2).tolist()
    [0.25, 0.75]
    """
    counts = np.bincount(member_of[member_of >= 0], minlength=num_models)
    if counts.sum() == 0:
        return np.full(num_models, 1 / num_models)
    shares: Floats = counts / counts.sum()
    return shares


def compute_mixtures(member_of: Ints, num_models: int) -> Floats:
    """Return (N, models): each client uses its own model.

    Clients without a model (-1) use all models, weighted by their shares.
    """
    mixtures = np.tile(compute_shares(member_of, num_models), (len(member_of), 1))
    has_model = member_of >= 0
    mixtures[has_model] = np.eye(num_models)[member_of[has_model]]
    return mixtures
