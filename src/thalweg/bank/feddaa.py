from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.bank.base import BankAssignment, is_step_start, require_concepts
from thalweg.bank.prototype_set import (
    Output,
    PrototypeSet,
    client_prototypes,
    read_prototypes,
    validate_prototypes,
)
from thalweg.bank.soft import Prediction, SoftBank, assign_all_models, client_mixtures, grow_mix
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim
from thalweg.core.config import UPPER_BOUNDS, check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints, Roster, SurveyResponses
from thalweg.theory import Clustering, cluster, count_clusters, real_drift
from thalweg.theory.prototypes import MissingRule

Bools = npt.NDArray[np.bool_]


class FedDaaState(NamedTuple):
    """The server's state of the current time step."""

    mass: Floats32  # (N, models, C) label mass of each model, as last received in this step
    number: int  # number of the step, counted from 0; -1: before the first step
    began: int  # the round in which the step began
    clustered_in: int  # the round in which the clients were last clustered; -1: never
    learn_since: Ints  # (N,) clients train on samples that arrived in this round or later
    drifted: Bools  # (N,) clients whose concept was found to have changed
    clusters_found: int  # 0: never clustered
    started_in: int  # the first round of the step with a cohort; -1: before the first step
    judged: Bools  # (N,) clients with old and new prototypes, so that drift can be determined
    concepts: Ints  # (N,) true concepts at the start of the step; -1: not known


@dataclass(frozen=True)
class FedDaa(SoftBank):
    r"""FedDAA: FedRC in time steps, with a new number of models and drift detection in each step.

    A time step starts every `every` rounds. All present clients are then surveyed. Each computes
    two prototypes with the first model of the bank, one of the samples of the previous step and
    one of the samples that arrive now. Row r of a prototype is the mean output for class r:

    .. math::  P_k[r] = \frac{1}{|\{i : y_i = r\}|} \sum_{i : y_i = r} f(x_i)

    - NCD (number of clusters): the bank gets as many models as the new prototypes have clusters,
      the k-means clustering with 2 to :math:`M` clusters with the largest silhouette
      (`theory.count_clusters`). Additional models are random; surplus models are closed
      (`shrinking`).
    - RDLD (real drift detection): a client has drifted if its old and its new prototype are
      closest to different cluster centres (`theory.real_drift`). It assumes that the first model
      answers old and new samples of one concept alike. If the inputs change between the steps, as
      in FedDAA's experiments, this depends on the data: docs/results/drift.md.
    - DAA (data of drifted clients): drifted clients train on the samples of this step, the others
      also on those of the previous step.

    Within a step clients train as in `FedRc`. Mixtures and label priors are reset at its start.

    Symbols, FedDAA -> here
        :math:`\tau, M`      -> every, max_clusters
        :math:`C^1, C^t`     -> first_count and the number found, or `given` (its last value is
                                used for all later steps)
        :math:`P_k^{t-1}, P_k^t` -> old and new prototype of client k

    Differs from the paper: NCD determines the number of models, whereas the released code uses the
    true one (``cluster_count="given"``); classes that a client does not have are rows of zeros, as
    in the code, or set by `missing`; clients that were not surveyed train on new samples only. The
    ablations: without NCD there are always `first_count` models, without RDLD no client
    counts as drifted, without DAA all clients train on this step's samples only.

    The output for class 0 is 0 in the old and the new data of clients 0 and 1. It changes from 0
    to 4 at client 2. There are two clusters, client 2 has drifted, and it trains on samples from
    round 40 on:

    >>> bank, clients = FedDaa(every=40), np.arange(3)
    >>> roster = Roster(0, clients, np.ones(3), np.zeros(3, int), cohort=clients)
    >>> plan = bank.assign(bank.init(num_clients=3, num_classes=1), roster, {}, num_models=1)
    >>> has_class = np.ones((3, 1))
    >>> responses = {
    ...     "old_prototype": np.array([[0.0], [0.0], [0.0]]), "old_prototype_classes": has_class,
    ...     "new_prototype": np.array([[0.0], [0.0], [4.0]]), "new_prototype_classes": has_class,
    ...     "new_since": np.full((3, 1), 40.0),
    ... }
    >>> roster = Roster(
    ...     40, clients, np.ones(3), np.zeros(3, int), cohort=clients, surveyed=clients
    ... )
    >>> plan = bank.assign(plan.state, roster, responses, num_models=2)
    >>> len(plan.mix), plan.state.drifted.tolist(), plan.state.learn_since.tolist()
    (2, [False, False, True], [0, 0, 40])
    """

    has_fixed_models_in_step: ClassVar[bool] = True

    every: int | None = 40
    """Rounds in a time step; none: a step starts when the cohort contains an alarmed client."""
    min_step_rounds: int = 10
    """Minimum length of a step that an alarm can end, in rounds."""
    cluster_count: Literal["ncd", "given"] = "ncd"
    """Number of models: found by NCD, or taken from `given`."""
    given: tuple[int, ...] = (2, 3, 4)
    """Number of models in each step, for cluster_count="given"; the last one is repeated."""
    drift_flags: Literal["rdld", "oracle"] = "rdld"
    """Which clients have drifted: those found by RDLD, or those whose true concept changed. The
    true concepts are known in simulations only; with them, this is an oracle."""
    first_count: int = 2
    """Number of models in the first step, and in all steps without NCD."""
    max_clusters: int = 9
    single_cluster_threshold: float | None = None
    """Silhouette below which there is one cluster; none: only if all prototypes are equal."""
    missing: MissingRule = "zero"
    """Prototype rows of classes that a client does not have: zeros, imputed, or masked."""
    output: Output = "logits"
    shrinking: Literal["largest", "matched"] = "largest"
    """Models to keep if their number falls: those with the largest total mixture weight, or the
    model with the largest weight among the clients of each cluster (each model once)."""
    use_ncd: bool = True
    use_rdld: bool = True
    use_daa: bool = True
    prediction: Prediction = "mixture"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            every="[1, inf) or none",
            min_step_rounds="[1, inf)",
            first_count="[1, MODELS]",
            max_clusters="[1, MODELS]",
            single_cluster_threshold="[-1, 1] or none",
        )
        require(
            len(self.given) > 0 and min(self.given) >= 1,
            "given must list at least one number of models, one for each step and each at least "
            f"1, got {list(self.given)}.",
        )
        require(
            max(self.given) <= UPPER_BOUNDS["MODELS"],
            f"given must not exceed {UPPER_BOUNDS['MODELS']:,} models, got {list(self.given)}.",
        )
        require(
            self.drift_flags == "rdld" or self.use_rdld,
            "drift_flags=oracle has no effect with use_rdld=false, where no client counts as "
            "drifted. Set use_rdld=true or drift_flags=rdld.",
        )

    @property
    def max_jobs(self) -> int:
        """Every client trains all models."""
        if not self.use_ncd:
            return self.first_count
        if self.cluster_count == "given":
            return max(self.given)
        return max(self.first_count, self.max_clusters)

    @property
    def is_oracle(self) -> bool:
        """Whether the bank receives the true concepts."""
        return self.drift_flags == "oracle"

    @property
    def rounds_per_step(self) -> int | None:
        """Rounds of a time step, which must be those of the world; None: any."""
        return self.every

    @property
    def sends_models(self) -> bool:
        return True

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        is_surveyed = is_step_start(self.every, roster) and roster.rnd > 0
        return roster.present if is_surveyed else roster.present[:0]

    def answer_survey(self, view: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
        """Return prototypes of the samples that arrive now and of those of the previous step."""
        began = None if self.every is None else view.rnd - self.every
        return None, client_prototypes(view, began, self.output)

    def validate_claim(self, claim: Claim) -> str | None:
        return (
            validate_prototypes(claim)
            if claim.is_survey_response
            else super().validate_claim(claim)
        )

    def init(self, num_clients: int, num_classes: int) -> FedDaaState:
        return FedDaaState(
            mass=np.zeros((num_clients, self._first_num_models, num_classes), dtype=np.float32),
            number=-1,
            began=0,
            clustered_in=-1,
            learn_since=np.zeros(num_clients, dtype=np.int64),
            drifted=np.zeros(num_clients, dtype=bool),
            clusters_found=0,
            started_in=-1,
            judged=np.zeros(num_clients, dtype=bool),
            concepts=np.full(num_clients, -1, dtype=np.int64),
        )

    def assign(
        self, state: FedDaaState, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        mix = np.eye(num_models)
        if state.number < 0:
            mix = grow_mix(num_models, self._first_num_models)
            state = state._replace(
                number=0, started_in=roster.rnd, concepts=self._read_concepts(roster)
            )
        elif self._has_ended(state, roster):
            state, mix = self._start_step(state, roster, responses, num_models)
        return assign_all_models(state, roster, mix, state.began, state.learn_since)

    def extra_metrics(self, state: FedDaaState, roster: Roster) -> Mapping[str, float | list[int]]:
        """Return the number of clusters, and in the first round of a step also the drifts.

        In simulations `evaluation.DriftDetection` compares the drifts with the true ones.
        """
        extra_metrics: dict[str, float | list[int]] = {}
        if state.clusters_found > 0:
            extra_metrics["clusters_found"] = state.clusters_found
        if state.clustered_in == roster.rnd:
            extra_metrics["drifts_found"] = int(state.drifted.sum())
        if state.started_in == roster.rnd:
            extra_metrics["judged_clients"] = np.flatnonzero(state.judged).tolist()
            extra_metrics["drifted_clients"] = np.flatnonzero(state.drifted).tolist()
        return extra_metrics

    def _has_ended(self, state: FedDaaState, roster: Roster) -> bool:
        """Return whether a new step is due, also in the first round after one without a cohort."""
        if self.every is not None:
            return roster.rnd // self.every > state.began // self.every
        return (
            is_step_start(self.every, roster) and roster.rnd >= state.began + self.min_step_rounds
        )

    def _start_step(
        self, state: FedDaaState, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> tuple[FedDaaState, Floats]:
        began = roster.rnd if self.every is None else roster.rnd // self.every * self.every
        prototype_set = read_prototypes(responses, roster, self.missing)
        found = self._find_clusters(prototype_set)
        concepts = self._read_concepts(roster)
        old, drifted = self._find_drifts(prototype_set, found, state.concepts != concepts)
        wanted = self._num_models_for(state.number + 1, found, num_models)
        mix = grow_mix(num_models, wanted)
        if wanted < num_models:
            kept = self._choose_kept(client_mixtures(state.mass), wanted, old, found)
            mix = np.eye(num_models)[kept]
        learn_since = self._learn_since(state, began, prototype_set, drifted)
        judged = np.zeros(roster.num_clients, dtype=bool)
        judged[prototype_set.clients[prototype_set.has_old]] = True
        return FedDaaState(
            mass=np.zeros((roster.num_clients, wanted, state.mass.shape[2]), dtype=np.float32),
            number=state.number + 1,
            began=began,
            clustered_in=roster.rnd if found is not None else state.clustered_in,
            learn_since=learn_since,
            drifted=drifted,
            clusters_found=state.clusters_found if found is None else found.size,
            started_in=roster.rnd,
            judged=judged,
            concepts=concepts,
        ), mix

    def _read_concepts(self, roster: Roster) -> Ints:
        """Return (N,) the true concepts, or -1 if the bank does not use them."""
        if self.is_oracle:
            return require_concepts(roster, "bank.drift_flags=oracle")
        return np.full(roster.num_clients, -1, dtype=np.int64)

    @property
    def _first_num_models(self) -> int:
        return self._num_models_for(0, None, self.first_count)

    def _num_models_for(self, step: int, found: Clustering | None, num_models: int) -> int:
        """Return the number of models in a step."""
        if not self.use_ncd:
            return self.first_count
        if self.cluster_count == "given":
            return self.given[min(step, len(self.given) - 1)]
        return num_models if found is None else found.size

    def _find_clusters(self, prototype_set: PrototypeSet) -> Clustering | None:
        """Cluster the new prototypes; return None if there are none."""
        if len(prototype_set.clients) == 0:
            return None
        if not self.use_ncd:
            return cluster(prototype_set.new, self.first_count)
        return count_clusters(prototype_set.new, self.max_clusters, self.single_cluster_threshold)

    def _find_drifts(
        self, prototype_set: PrototypeSet, found: Clustering | None, has_changed: Bools
    ) -> tuple[Ints, Bools]:
        """Return (N,) the cluster of each client's old data (-1: none) and (N,) drift flags.

        `has_changed` (N,) are the clients whose true concept has changed.
        """
        old = np.full(len(has_changed), -1, dtype=np.int64)
        drifted = np.zeros(len(has_changed), dtype=bool)
        if found is not None and prototype_set.has_old.any():
            clients = prototype_set.clients[prototype_set.has_old]
            nearest = real_drift(
                prototype_set.old[prototype_set.has_old],
                prototype_set.new[prototype_set.has_old],
                found.centres,
            )
            flags = has_changed[clients] if self.is_oracle else nearest.has_drifted
            old[clients], drifted[clients] = nearest.old, flags & self.use_rdld
        return old, drifted

    def _learn_since(
        self, state: FedDaaState, began: int, prototype_set: PrototypeSet, drifted: Bools
    ) -> Ints:
        """Return (N,) the first round whose samples each client trains on.

        Clients without a response are treated like drifted ones: they train on new samples only.
        If an alarm started the step, the data changed before the step. New samples are then those
        that the client reported as new, and stable clients train on all their samples.
        """
        stable = np.zeros(len(drifted), dtype=bool)
        stable[prototype_set.clients] = ~drifted[prototype_set.clients]
        stable |= not self.use_rdld
        new, old = np.full(len(drifted), began), state.began
        if self.every is None:
            new[prototype_set.clients], old = prototype_set.new_since, 0
        return np.where(stable & self.use_daa, old, new)

    def _choose_kept(
        self, mixtures: Floats, wanted: int, old: Ints, found: Clustering | None
    ) -> Ints:
        """Return the models to keep, ascending."""
        from scipy.optimize import linear_sum_assignment

        if self.shrinking == "matched" and found is not None and found.size == wanted:
            used = np.stack([mixtures[old == c].sum(axis=0) for c in range(wanted)])
            return np.sort(linear_sum_assignment(used, maximize=True)[1])
        return np.sort(np.argsort(-mixtures.sum(axis=0), kind="stable")[:wanted])
