from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg.aggregation.bank import Arranged, answered, chosen
from thalweg.core.config import check_ranges, check_words
from thalweg.core.talk import View
from thalweg.core.types import Answers, Floats, Ints, Roster

COSTS = "model_costs"
SAMPLES = "newest_samples"


class Clusters(NamedTuple):
    """Who belongs to which model, and how well it suited them."""

    member_of: Ints  # (N,) model of each client; -1: never seen
    previous: Floats  # (N,) the client's best loss (or error) when last seen; nan: never
    isolated_for: Ints  # (models,) rounds during which a model is not merged yet
    last_used: Ints  # (models,) round of the last use
    rnd: int


@dataclass(frozen=True)
class FedDrift:
    r"""FedDrift: a client that has drifted gets a model of its own; models that are alike are merged.

    Before training, every client of the cohort tries all models on its newest data and takes the best, unless
    even that one is worse by more than :math:`\delta` than the best one was when it last took part: then it gets
    a new model, a copy of the best one, which is left alone for `isolation` rounds. Then models are merged, the two
    nearest first, while their distance is below :math:`\delta'`:

    .. math::  D_{ij} = \max(L_{ij} - L_{ii},\; L_{ji} - L_{jj},\; 0), \qquad
               D_{kl} \leftarrow \max(D_{il}, D_{jl})

    with :math:`L_{ij}` the loss of model i on the data of the cohort's clients of model j. A merged model is the
    mean weighted by samples.

    Symbols, Jothimurugesan et al. 2023 -> here
        :math:`\delta, \delta'`  -> drift_threshold, merge_threshold (none: the same)

    Differs from the released code: losses, not accuracies (``measure="accuracy"`` for those); a new model starts as
    a copy; only models with clients in the cohort can be compared in a round.
    """

    measure: Literal["loss", "accuracy"] = "loss"
    drift_threshold: float = 0.5
    merge_threshold: float | None = None
    isolation: int = 1
    max_models: int = 10

    def __post_init__(self) -> None:
        check_words(self)
        check_ranges(
            self,
            drift_threshold="[0, inf)",
            merge_threshold="[0, inf) or none",
            isolation="[0, inf)",
            max_models="[1, inf)",
        )

    @property
    def shows_models(self) -> bool:
        return True

    def whom(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return chosen(roster)

    def answer(self, view: View) -> tuple[None, Mapping[str, Floats]]:
        """What every model costs on the newest data, and how many samples those are."""
        rows = view.newest
        if len(rows) == 0:
            return None, {}
        looks = [view.look(model) for model in range(view.num_models)]
        if self.measure == "loss":
            costs = [float(look.losses(rows).mean(dtype=np.float64)) for look in looks]
        else:
            costs = [1 - float(look.right(rows).mean()) for look in looks]
        return None, {COSTS: np.array(costs), SAMPLES: np.array([float(len(rows))])}

    def init(self, num_clients: int, num_classes: int) -> Clusters:
        return Clusters(
            member_of=np.full(num_clients, -1, dtype=np.int64),
            previous=np.full(num_clients, np.nan),
            isolated_for=np.zeros(1, dtype=np.int64),
            last_used=np.zeros(1, dtype=np.int64),
            rnd=0,
        )

    def arrange(
        self, notes: Clusters, roster: Roster, answers: Answers, num_models: int
    ) -> Arranged:
        cohort, answers = chosen(roster), answered(answers, roster)
        nobody_spoke = np.full((len(cohort), num_models), np.nan)
        costs = answers.get(COSTS, nobody_spoke)  # (K, models)
        sizes = np.nan_to_num(answers.get(SAMPLES, nobody_spoke)[:, 0])  # (K,)
        draft = _Draft(notes, num_models)
        for k, client in enumerate(cohort.tolist()):
            if not np.isnan(costs[k]).any():
                self._settle(draft, client, costs[k])
        members = draft.member_of[cohort]
        members[members < 0] = 0  # never seen, and nothing to judge by
        draft.member_of[cohort] = members
        self._merge(draft, cohort, costs, sizes)
        draft.last_used[draft.member_of[cohort]] = notes.rnd + 1
        return draft.finish(cohort)

    def shares(self, notes: Clusters, num_models: int) -> Floats:
        counts = np.bincount(notes.member_of[notes.member_of >= 0], minlength=num_models)
        if counts.sum() == 0:
            return np.full(num_models, 1 / num_models)
        shares: Floats = counts / counts.sum()
        return shares

    def _settle(self, draft: _Draft, client: int, costs: Floats) -> None:
        """The best model, or one of its own if the client has drifted."""
        best = int(np.argmin(costs))
        before = draft.previous[client]
        drifted = not math.isnan(before) and costs[best] > before + self.drift_threshold
        place = draft.open(best, self.max_models, self.isolation) if drifted else None
        draft.member_of[client] = best if place is None else place
        draft.previous[client] = costs[best]

    def _merge(self, draft: _Draft, cohort: Ints, costs: Floats, sizes: Floats) -> None:
        """Complete linkage among the models that are not isolated and have data in this cohort."""
        threshold = self.drift_threshold if self.merge_threshold is None else self.merge_threshold
        own = draft.member_of[cohort]
        usable = ~np.isnan(costs).any(axis=1)
        present = [
            model
            for model in range(costs.shape[1])
            if draft.isolated_for[model] == 0
            and not draft.is_new[model]  # nobody has tried it
            and (usable & (own == model)).any()
        ]
        if len(present) < 2:
            return
        table = np.empty((len(present), len(present)))  # model i on the data of cluster j
        for j, model in enumerate(present):
            mine = usable & (own == model)
            table[:, j] = np.average(costs[mine][:, present], axis=0, weights=sizes[mine])
        for group in agglomerate(distances(table), threshold):
            models = [present[place] for place in group]
            weights = [float(sizes[own == model].sum()) for model in models]
            draft.merge(models, np.array(weights))


class _Draft:
    """The bank while it is being rearranged. Mutable, and never leaves this module."""

    def __init__(self, notes: Clusters, num_models: int) -> None:
        self.member_of, self.previous = notes.member_of.copy(), notes.previous.copy()
        self.isolated_for = np.maximum(notes.isolated_for - 1, 0)
        self.last_used = notes.last_used.copy()
        self.rnd = notes.rnd + 1
        self.mix = np.eye(num_models)
        self.is_new = np.zeros(num_models, dtype=bool)

    def open(self, parent: int, max_models: int, isolation: int) -> int | None:
        """A copy of a model, in a place of its own; None if there is no room."""
        place = len(self.mix)
        if place >= max_models:
            unused = [m for m in range(place) if not (self.member_of == m).any()]
            if not unused:
                return None
            place = min(unused, key=lambda m: (self.last_used[m], m))
            self.mix[place] = self.mix[parent]
        else:
            self.mix = np.vstack([self.mix, self.mix[parent]])
            self.is_new = np.append(self.is_new, False)
            self.isolated_for = np.append(self.isolated_for, 0)
            self.last_used = np.append(self.last_used, 0)
        self.is_new[place], self.last_used[place] = True, self.rnd
        self.isolated_for[place] = isolation + 1 if isolation else 0
        return place

    def merge(self, models: list[int], weights: Floats) -> None:
        """All clients of these models follow the first, which becomes their mean."""
        first, *others = models
        self.mix[first] = weights @ self.mix[models] / weights.sum()
        for other in others:
            self.member_of[self.member_of == other] = first
            self.last_used[other] = -1

    def finish(self, cohort: Ints) -> Arranged:
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
        return Arranged(notes, self.mix[kept], self.is_new[kept], cohort, member_of[cohort])


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
