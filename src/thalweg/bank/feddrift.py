from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from thalweg.bank.bank_edit import BankEdit, Clusters, compute_mixtures, compute_shares
from thalweg.bank.base import BankAssignment, is_step_start, require_cohort
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints, Roster, SurveyResponses

COSTS = "model_costs"
SAMPLES = "newest_samples"
BEFORE = "cost_before"
MAX_SAMPLES = 1e7  # plausible number of new samples; it is the weight of the client's costs


@dataclass(frozen=True)
class FedDrift:
    r"""FedDrift: drifted clients get a new model, and models that perform alike are merged.

    Before training, each client of the cohort evaluates all models on its newest data and takes
    the best one. If the cost of the best model has grown by more than :math:`\delta` since the
    client's last survey, the client has drifted: it gets a copy of the best model, which is not
    merged for `isolation` rounds. Then the two closest models are merged repeatedly (complete
    linkage) while their distance is below :math:`\delta'`:

    .. math::  D_{ij} = \max(L_{ij} - L_{ii},\; L_{ji} - L_{jj},\; 0), \qquad
               D_{kl} \leftarrow \max(D_{il}, D_{jl})

    where :math:`L_{ij}` is the mean cost of model i on the data of the clients of model j, and k
    is the merger of i and j. A merged model is the mean of its parts, weighted by samples.

    With `every` above 1 the method works in time steps, as in the paper. At the start of a step
    all present clients are surveyed, and :math:`\delta` is measured against the best model on the
    data that the client holds of the previous step. During a step clients keep their model, or
    take the best one with `reassign`; no client is treated as drifted and no models are merged.

    Symbols, Jothimurugesan et al. 2023 -> here
        :math:`\delta, \delta'`  -> drift_threshold, merge_threshold (None: the same value)
        :math:`L`                -> the survey responses, averaged by number of samples

    Differs from the released code: costs are losses (``measure="accuracy"`` for error rates), a
    new model is a copy (``new_model="random"`` for the code's), and only models with clients in
    the survey are compared. Models at equal distances are merged in the order of
    `scipy.cluster.hierarchy.linkage`.

    Model 0 costs 0.2 on its own data and model 2 costs 0.25 on its own. On each other's data they
    cost 0.5 and 0.4, so their distance is max(0.5 - 0.2, 0.4 - 0.25) = 0.3:

    >>> L = np.array([[0.2, 1.0, 0.5], [0.9, 0.3, 0.8], [0.4, 0.7, 0.25]])
    >>> model_distances(L).round(6).tolist()
    [[0.0, 0.8, 0.3], [0.8, 0.0, 0.5], [0.3, 0.5, 0.0]]
    >>> group_models(model_distances(L), threshold=0.4)
    [[0, 2]]
    """

    max_jobs: ClassVar[int] = 1

    measure: Literal["loss", "accuracy"] = "loss"
    """Cost of a model at a client: the mean loss, or the error rate (accuracy)."""
    drift_threshold: float = 0.5
    """Increase of the cost above which a client has drifted."""
    merge_threshold: float | None = None
    """Distance below which models are merged; none: drift_threshold."""
    isolation: int = 1
    """Time steps for which a new model is not merged."""
    max_models: int = 10
    initial_models: int = 1
    """Models in round 0. The additional ones are random, and the clients of the first cohort are
    assigned to the models in turn."""
    every: int | None = 1
    """Rounds in a time step; none: a step starts when the cohort contains an alarmed client, and
    alarmed clients count as drifted, whatever their costs."""
    reassign: bool = False
    """During a step, too, clients of the cohort take the best model."""
    eager: bool = False
    """FedDrift-Eager: clients that drift in the same round share one new model; no merging."""
    new_model: Literal["copy", "random"] = "copy"
    """Initial parameters of a new model: those of the client's best model, or random ones."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            drift_threshold="[0, inf)",
            merge_threshold="[0, inf) or none",
            isolation="[0, inf)",
            max_models="[1, MODELS]",
            initial_models="[1, MODELS]",
            every="[1, inf) or none",
        )
        require(
            self.initial_models <= self.max_models,
            f"initial_models must be at most max_models ({self.max_models}), "
            f"got {self.initial_models}.",
        )

    @property
    def has_fixed_models_in_step(self) -> bool:
        return not self.reassign  # a model that loses its clients is closed

    @property
    def rounds_per_step(self) -> int | None:
        """Rounds of a time step, which must be those of the world; None: any."""
        return None if self.every == 1 else self.every

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
        """Return the cost of each model on the newest samples, and the number of samples.

        With time steps, also return the cost of the best model on the samples held before.
        """
        rows = view.newest
        if len(rows) == 0:
            return None, {}
        response = {COSTS: self._costs(view, rows), SAMPLES: np.array([float(len(rows))])}
        if self.every not in (1, None) and len(view.held):
            response[BEFORE] = self._costs(view, view.held).min(keepdims=True)
        return None, response

    def validate_claim(self, claim: Claim) -> str | None:
        """Expect one cost per model and a plausible number of samples."""
        most = 1.0 if self.measure == "accuracy" else math.inf
        before = (
            check_vector(claim.uploads, BEFORE, 1, 0, most) if BEFORE in claim.uploads else None
        )
        return first_reason(
            check_names(claim.uploads, COSTS, SAMPLES, BEFORE),
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
        self, state: Clusters, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort, is_start = require_cohort(roster), is_step_start(self.every, roster)
        surveyed = cohort if roster.surveyed is None else roster.surveyed
        no_response = np.full((len(surveyed), num_models), np.nan)
        costs = responses.get(COSTS, no_response)  # (K, models)
        sizes = np.nan_to_num(responses.get(SAMPLES, no_response)[:, 0])  # (K,)
        edit = BankEdit(state, num_models, is_start)
        before = edit.previous[surveyed]
        if self.every is None:  # alarmed clients have drifted, no others
            alarmed = surveyed[:0] if roster.alarmed is None else roster.alarmed
            before = np.where(np.isin(surveyed, alarmed), -np.inf, np.nan)
        elif self.every != 1:
            before = responses.get(BEFORE, no_response)[:, 0]
        if not is_start:
            before = np.full(len(surveyed), np.nan)  # no client has drifted
        self._assign_clients(edit, surveyed, costs, before)
        if state.rnd == 0 and self.initial_models > num_models:
            edit.add_random_models(self.initial_models - num_models)
            edit.member_of[cohort] = np.arange(len(cohort)) % self.initial_models
        clients = np.union1d(surveyed, cohort)
        members = edit.member_of[clients]
        members[members < 0] = 0  # no costs known: the first model
        edit.member_of[clients] = members
        if is_start and not self.eager:
            self._merge_similar(edit, surveyed, costs, sizes)
        edit.last_used[edit.member_of[cohort]] = state.rnd + 1
        return edit.finish(cohort)

    def shares(self, state: Clusters, num_models: int) -> Floats:
        return compute_shares(state.member_of, num_models)

    def mixtures(self, state: Clusters, num_models: int) -> Floats:
        return compute_mixtures(state.member_of, num_models)

    def _costs(self, view: SurveyContext, rows: Ints) -> Floats:
        """Return the cost (models,) of each model on some samples."""
        probes = [view.probe_model(model) for model in range(view.num_models)]
        if self.measure == "loss":
            return np.array([float(probe.losses(rows).mean(dtype=np.float64)) for probe in probes])
        return np.array([1 - float(probe.is_correct(rows).mean()) for probe in probes])

    def _assign_clients(
        self, edit: BankEdit, surveyed: Ints, costs: Floats, before: Floats
    ) -> None:
        """Assign each client its best model, and drifted clients a new one."""
        shared: dict[int, int] = {}  # eager: clients of one new model -> their best old model
        for k, client in enumerate(surveyed.tolist()):
            if np.isnan(costs[k]).any():
                continue
            best = int(np.argmin(costs[k]))
            drifted = (
                not math.isnan(before[k]) and costs[k, best] > before[k] + self.drift_threshold
            )
            opened = self._open_model(edit, best) if drifted and not self.eager else None
            edit.member_of[client] = best if opened is None else opened
            edit.previous[client] = costs[k, best]
            if drifted and self.eager:
                shared[client] = best
        if shared:
            opened = self._open_model(edit, int(np.bincount(list(shared.values())).argmax()))
            if opened is not None:
                edit.member_of[list(shared)] = opened

    def _open_model(self, edit: BankEdit, parent: int) -> int | None:
        copied = parent if self.new_model == "copy" else None
        return edit.open_model(copied, self.max_models, self.isolation)

    def _merge_similar(self, edit: BankEdit, surveyed: Ints, costs: Floats, sizes: Floats) -> None:
        """Merge similar models among those that are not isolated and have surveyed clients."""
        threshold = self.drift_threshold if self.merge_threshold is None else self.merge_threshold
        own = edit.member_of[surveyed]
        usable = ~np.isnan(costs).any(axis=1)
        present = [
            model
            for model in range(costs.shape[1])
            if edit.isolated_for[model] == 0
            and not edit.is_new[model]  # its costs are not known yet
            and (usable & (own == model)).any()
        ]
        if len(present) < 2:
            return
        table = np.empty((len(present), len(present)))  # model i on the data of cluster j
        for j, model in enumerate(present):
            members = usable & (own == model)
            table[:, j] = np.average(costs[members][:, present], axis=0, weights=sizes[members])
        for group in group_models(model_distances(table), threshold):
            models = [present[index] for index in group]
            weights = [float(sizes[own == model].sum()) for model in models]
            edit.merge_models(models, np.array(weights))


def model_distances(costs: Floats) -> Floats:
    """Return (m, m) how much worse two models are on each other's data than on their own.

    `costs[i, j]` is the cost of model i on the data of the clients of model j.
    """
    own = np.diag(costs)
    worse = costs - own[:, None]  # L_ij - L_ii
    return np.maximum(np.maximum(worse, worse.T), 0.0)


def group_models(distances: Floats, threshold: float) -> list[list[int]]:
    """Return the groups of two or more models that complete linkage merges below `threshold`."""
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import
    from scipy.spatial.distance import squareform

    merges = linkage(squareform(distances, checks=False), method="complete")
    # fcluster merges at distances of at most t, this method at distances below the threshold.
    labels = fcluster(merges, np.nextafter(threshold, -np.inf), criterion="distance")
    groups = [np.flatnonzero(labels == label).tolist() for label in np.unique(labels)]
    return sorted(group for group in groups if len(group) > 1)
