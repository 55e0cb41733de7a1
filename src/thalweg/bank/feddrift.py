from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from thalweg.bank.bank_edit import BankEdit, Clusters
from thalweg.bank.base import BankAssignment, require_cohort
from thalweg.bank.linkage import agglomerate, distances
from thalweg.bank.time_steps import is_step_start
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_vector, first_reason
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints, Roster, SurveyResponses

COSTS = "model_costs"
SAMPLES = "newest_samples"
BEFORE = "cost_before"
MAX_SAMPLES = 1e7  # newest ones that a client may say it has: they are what its opinion weighs


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
    initial_models: int = 1
    """Models at the start; those after the first are drawn, and the first cohort is dealt to them in turn."""
    every: int | None = 1
    """Rounds of a time step; none: one begins when somebody in the cohort has been alarmed, and who has been is
    taken for drifted, whatever the losses."""
    reassign: bool = False
    """Also while a step lasts, clients take the model that suits them best."""
    eager: bool = False
    """FedDrift-Eager: all that drift at the same time share one new model, and nothing is merged."""
    new_model: Literal["copy", "random"] = "copy"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            drift_threshold="[0, inf)",
            merge_threshold="[0, inf) or none",
            isolation="[0, inf)",
            max_models="[1, inf)",
            initial_models="[1, inf)",
            every="[1, inf) or none",
        )
        require(
            self.initial_models <= self.max_models,
            f"initial_models must be at most max_models, {self.max_models}, got {self.initial_models}.",
        )

    @property
    def sends_models(self) -> bool:
        return True

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        cohort = require_cohort(roster)
        if self.every == 1 or (self.reassign and not is_step_start(self.every, roster)):
            return cohort
        if is_step_start(self.every, roster):
            return roster.present
        never = np.full(roster.num_clients, np.nan)
        return cohort[np.isnan(roster.known.get("loss", never))[cohort]]

    def answer_survey(self, view: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
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

    def validate_claim(self, claim: Claim) -> str | None:
        """A cost for each model, and as many samples as make up one client."""
        most = 1.0 if self.measure == "accuracy" else math.inf
        before = (
            check_vector(claim.uploads, BEFORE, 1, 0, most) if BEFORE in claim.uploads else None
        )
        return first_reason(
            check_vector(claim.uploads, COSTS, claim.num_models, 0, most),
            check_vector(claim.uploads, SAMPLES, 1, least=1, most=MAX_SAMPLES),
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

    def assign(
        self, notes: Clusters, roster: Roster, answers: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort, does_begin = require_cohort(roster), is_step_start(self.every, roster)
        who = cohort if roster.surveyed is None else roster.surveyed
        nobody_spoke = np.full((len(who), num_models), np.nan)
        costs = answers.get(COSTS, nobody_spoke)  # (K, models)
        sizes = np.nan_to_num(answers.get(SAMPLES, nobody_spoke)[:, 0])  # (K,)
        bank_edit = BankEdit(notes, num_models, does_begin)
        before = bank_edit.previous[who]
        if self.every is None:  # the alarm says who
            alarmed = who[:0] if roster.alarmed is None else roster.alarmed
            before = np.where(np.isin(who, alarmed), -np.inf, np.nan)
        elif self.every != 1:
            before = answers.get(BEFORE, nobody_spoke)[:, 0]
        if not does_begin:
            before = np.full(len(who), np.nan)  # nobody drifts
        self._assign_clients(bank_edit, who, costs, before)
        if notes.rnd == 0 and self.initial_models > num_models:
            bank_edit.add_random_models(self.initial_models - num_models)
            bank_edit.member_of[cohort] = np.arange(len(cohort)) % self.initial_models
        everybody = np.union1d(who, cohort)
        members = bank_edit.member_of[everybody]
        members[members < 0] = 0  # never seen, and nothing to judge by
        bank_edit.member_of[everybody] = members
        if does_begin and not self.eager:
            self._merge_similar(bank_edit, who, costs, sizes)
        bank_edit.last_used[bank_edit.member_of[cohort]] = notes.rnd + 1
        return bank_edit.finish(cohort)

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

    def _costs(self, view: SurveyContext, rows: Ints) -> Floats:
        """(models,) of some samples."""
        looks = [view.probe_model(model) for model in range(view.num_models)]
        if self.measure == "loss":
            return np.array([float(look.losses(rows).mean(dtype=np.float64)) for look in looks])
        return np.array([1 - float(look.is_correct(rows).mean()) for look in looks])

    def _assign_clients(
        self, bank_edit: BankEdit, who: Ints, costs: Floats, before: Floats
    ) -> None:
        """The best model for everybody, or a new one for who has drifted."""
        late: dict[int, int] = {}  # who shares a new model, and the best that they have had
        for k, client in enumerate(who.tolist()):
            if np.isnan(costs[k]).any():
                continue
            best = int(np.argmin(costs[k]))
            drifted = (
                not math.isnan(before[k]) and costs[k, best] > before[k] + self.drift_threshold
            )
            place = self._open_model(bank_edit, best) if drifted and not self.eager else None
            bank_edit.member_of[client] = best if place is None else place
            bank_edit.previous[client] = costs[k, best]
            if drifted and self.eager:
                late[client] = best
        if late:
            place = self._open_model(bank_edit, int(np.bincount(list(late.values())).argmax()))
            if place is not None:
                bank_edit.member_of[list(late)] = place

    def _open_model(self, bank_edit: BankEdit, parent: int) -> int | None:
        like = parent if self.new_model == "copy" else None
        return bank_edit.open_model(like, self.max_models, self.isolation)

    def _merge_similar(self, bank_edit: BankEdit, who: Ints, costs: Floats, sizes: Floats) -> None:
        """Complete linkage among the models that are not isolated and have data in this cohort."""
        threshold = self.drift_threshold if self.merge_threshold is None else self.merge_threshold
        own = bank_edit.member_of[who]
        usable = ~np.isnan(costs).any(axis=1)
        present = [
            model
            for model in range(costs.shape[1])
            if bank_edit.isolated_for[model] == 0
            and not bank_edit.is_new[model]  # nobody has tried it
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
            bank_edit.merge_models(models, np.array(weights))
