from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from thalweg.aggregation.bank import Arranged, chosen
from thalweg.aggregation.draft import Clusters, Draft
from thalweg.aggregation.linkage import agglomerate, distances
from thalweg.aggregation.steps import begins
from thalweg.core.claims import Claim, first_of, misfit
from thalweg.core.config import check_ranges, check_words
from thalweg.core.errors import require
from thalweg.core.talk import View
from thalweg.core.types import Answers, Floats, Ints, Roster

COSTS = "model_costs"
SAMPLES = "newest_samples"
BEFORE = "cost_before"
MOST_SAMPLES = 1e7  # newest ones that a client may say it has: they are what its opinion weighs


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

    With `every` above 1 the method goes by time steps, as in the paper: when one begins, everybody who is here is
    asked, and :math:`\delta` is measured against the best model on what the client holds of the last step. In
    between clients keep the model they have, or with `reassign` those of the cohort take the best of all in every
    round, but nobody drifts and nothing is merged.

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
    start: int = 1
    """Models at the start; those after the first are drawn, and the first cohort is dealt to them in turn."""
    every: int | None = 1
    """Rounds of a time step; none: one begins when somebody in the cohort has been alarmed, and who has been is
    taken for drifted, whatever the losses."""
    reassign: bool = False
    """Also while a step lasts, clients take the model that suits them best."""
    eager: bool = False
    """FedDrift-Eager: all that drift at the same time share one new model, and nothing is merged."""
    new_model: Literal["copy", "drawn"] = "copy"

    def __post_init__(self) -> None:
        check_words(self)
        check_ranges(
            self,
            drift_threshold="[0, inf)",
            merge_threshold="[0, inf) or none",
            isolation="[0, inf)",
            max_models="[1, inf)",
            start="[1, inf)",
            every="[1, inf) or none",
        )
        require(
            self.start <= self.max_models,
            f"start must be at most max_models, {self.max_models}, got {self.start}.",
        )

    @property
    def shows_models(self) -> bool:
        return True

    def whom(self, roster: Roster, rng: np.random.Generator) -> Ints:
        cohort = chosen(roster)
        if self.every == 1 or (self.reassign and not begins(self.every, roster)):
            return cohort
        if begins(self.every, roster):
            return roster.here
        never = np.full(roster.num_clients, np.nan)
        return cohort[np.isnan(roster.known.get("loss", never))[cohort]]

    def answer(self, view: View) -> tuple[None, Mapping[str, Floats]]:
        """What every model costs on the newest data, and how many samples those are.

        As a time step begins also what the best one costs on the data of the last.
        """
        rows = view.newest
        if len(rows) == 0:
            return None, {}
        words = {COSTS: self._costs(view, rows), SAMPLES: np.array([float(len(rows))])}
        if self.every not in (1, None) and len(view.held):
            words[BEFORE] = self._costs(view, view.held).min(keepdims=True)
        return None, words

    def doubt(self, claim: Claim) -> str | None:
        """A cost for each model, and as many samples as make up one client."""
        most = 1.0 if self.measure == "accuracy" else math.inf
        before = misfit(claim.said, BEFORE, 1, 0, most) if BEFORE in claim.said else None
        return first_of(
            misfit(claim.said, COSTS, claim.num_models, 0, most),
            misfit(claim.said, SAMPLES, 1, least=1, most=MOST_SAMPLES),
            before,
        )

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
        cohort, does_begin = chosen(roster), begins(self.every, roster)
        who = cohort if roster.asked is None else roster.asked
        nobody_spoke = np.full((len(who), num_models), np.nan)
        costs = answers.get(COSTS, nobody_spoke)  # (K, models)
        sizes = np.nan_to_num(answers.get(SAMPLES, nobody_spoke)[:, 0])  # (K,)
        draft = Draft(notes, num_models, does_begin)
        before = draft.previous[who]
        if self.every is None:  # the alarm says who
            alarmed = who[:0] if roster.alarmed is None else roster.alarmed
            before = np.where(np.isin(who, alarmed), -np.inf, np.nan)
        elif self.every != 1:
            before = answers.get(BEFORE, nobody_spoke)[:, 0]
        if not does_begin:
            before = np.full(len(who), np.nan)  # nobody drifts
        self._settle(draft, who, costs, before)
        if notes.rnd == 0 and self.start > num_models:
            draft.add_drawn(self.start - num_models)
            draft.member_of[cohort] = np.arange(len(cohort)) % self.start
        everybody = np.union1d(who, cohort)
        members = draft.member_of[everybody]
        members[members < 0] = 0  # never seen, and nothing to judge by
        draft.member_of[everybody] = members
        if does_begin and not self.eager:
            self._merge(draft, who, costs, sizes)
        draft.last_used[draft.member_of[cohort]] = notes.rnd + 1
        return draft.finish(cohort)

    def shares(self, notes: Clusters, num_models: int) -> Floats:
        counts = np.bincount(notes.member_of[notes.member_of >= 0], minlength=num_models)
        if counts.sum() == 0:
            return np.full(num_models, 1 / num_models)
        shares: Floats = counts / counts.sum()
        return shares

    def mixtures(self, notes: Clusters, num_models: int) -> Floats:
        """(N, models) everybody uses the model they belong to; who was never seen, all of them by their shares."""
        mixtures = np.tile(self.shares(notes, num_models), (len(notes.member_of), 1))
        seen = notes.member_of >= 0
        mixtures[seen] = np.eye(num_models)[notes.member_of[seen]]
        return mixtures

    def _costs(self, view: View, rows: Ints) -> Floats:
        """(models,) of some samples."""
        looks = [view.look(model) for model in range(view.num_models)]
        if self.measure == "loss":
            return np.array([float(look.losses(rows).mean(dtype=np.float64)) for look in looks])
        return np.array([1 - float(look.right(rows).mean()) for look in looks])

    def _settle(self, draft: Draft, who: Ints, costs: Floats, before: Floats) -> None:
        """The best model for everybody, or a new one for who has drifted."""
        late: dict[int, int] = {}  # who shares a new model, and the best that they have had
        for k, client in enumerate(who.tolist()):
            if np.isnan(costs[k]).any():
                continue
            best = int(np.argmin(costs[k]))
            drifted = (
                not math.isnan(before[k]) and costs[k, best] > before[k] + self.drift_threshold
            )
            place = self._open(draft, best) if drifted and not self.eager else None
            draft.member_of[client] = best if place is None else place
            draft.previous[client] = costs[k, best]
            if drifted and self.eager:
                late[client] = best
        if late:
            place = self._open(draft, int(np.bincount(list(late.values())).argmax()))
            if place is not None:
                draft.member_of[list(late)] = place

    def _open(self, draft: Draft, parent: int) -> int | None:
        like = parent if self.new_model == "copy" else None
        return draft.open(like, self.max_models, self.isolation)

    def _merge(self, draft: Draft, who: Ints, costs: Floats, sizes: Floats) -> None:
        """Complete linkage among the models that are not isolated and have data in this cohort."""
        threshold = self.drift_threshold if self.merge_threshold is None else self.merge_threshold
        own = draft.member_of[who]
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
