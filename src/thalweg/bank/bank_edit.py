"""Hard clusters: who belongs to which model, and how models are opened, merged and closed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg.bank.base import BankAssignment
from thalweg.core.types import Floats, Ints


class Clusters(NamedTuple):
    """Who belongs to which model, and how well it suited them."""

    member_of: Ints  # (N,) model of each client; -1: never seen
    previous: Floats  # (N,) the client's best loss (or error) when last seen; nan: never
    isolated_for: Ints  # (models,) rounds during which a model is not merged yet
    last_used: Ints  # (models,) round of the last use
    rnd: int


class BankEdit:
    """A bank while it is being rearranged. Mutable, and forgotten as soon as it is finished."""

    def __init__(self, notes: Clusters, num_models: int, is_step_start: bool = True) -> None:
        self.member_of, self.previous = notes.member_of.copy(), notes.previous.copy()
        self.isolated_for = np.maximum(notes.isolated_for - int(is_step_start), 0)
        self.last_used = notes.last_used.copy()
        self.rnd = notes.rnd + 1
        self.mix = np.eye(num_models)
        self.is_new = np.zeros(num_models, dtype=bool)

    def add_random_models(self, count: int) -> None:
        """Some more models, which are drawn."""
        for _ in range(count):
            self._append(np.zeros(self.mix.shape[1]))
            self.is_new[-1] = True

    def open_model(self, parent: int | None, max_models: int, isolation: int) -> int | None:
        """A copy of a model, or one that is drawn, in a place of its own; None if there is no room."""
        row = np.zeros(self.mix.shape[1]) if parent is None else self.mix[parent]
        place = len(self.mix)
        if place >= max_models:
            unused = [m for m in range(place) if not (self.member_of == m).any()]
            if not unused:
                return None
            place = min(unused, key=lambda m: (self.last_used[m], m))
            self.mix[place] = row
        else:
            self._append(row)
        self.is_new[place], self.last_used[place] = True, self.rnd
        self.isolated_for[place] = isolation + 1 if isolation else 0
        return place

    def _append(self, row: Floats) -> None:
        self.mix = np.vstack([self.mix, row])
        self.is_new = np.append(self.is_new, False)
        self.isolated_for = np.append(self.isolated_for, 0)
        self.last_used = np.append(self.last_used, 0)

    def merge_models(self, models: list[int], weights: Floats) -> None:
        """All clients of these models follow the first, which becomes their mean."""
        first, *others = models
        self.mix[first] = weights @ self.mix[models] / weights.sum()
        for other in others:
            self.member_of[self.member_of == other] = first
            self.last_used[other] = -1

    def finish(self, cohort: Ints) -> BankAssignment:
        """Close what serves nobody, but never the last model."""
        serves = np.bincount(self.member_of[self.member_of >= 0], minlength=len(self.mix)) > 0
        kept = np.flatnonzero(serves)
        if not len(kept):
            kept = np.array([0])
        place = np.full(len(self.mix), -1, dtype=np.int64)
        place[kept] = np.arange(len(kept))
        member_of = np.where(self.member_of >= 0, place[self.member_of], -1)
        notes = Clusters(
            member_of, self.previous, self.isolated_for[kept], self.last_used[kept], self.rnd
        )
        return BankAssignment(notes, self.mix[kept], self.is_new[kept], cohort, member_of[cohort])
