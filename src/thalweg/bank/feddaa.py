from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.bank.base import BankAssignment
from thalweg.bank.prototype_set import (
    Output,
    PrototypeSet,
    client_prototypes,
    read_prototypes,
    validate_prototypes,
)
from thalweg.bank.soft import Prediction, SoftBank, assign_all_models, client_mixtures, grow_mix
from thalweg.bank.time_steps import is_step_start
from thalweg.core.capabilities import SurveyContext
from thalweg.core.claims import Claim
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints, Roster, SurveyResponses
from thalweg.theory import Clustering, cluster, count_clusters, precision_recall, real_drift
from thalweg.theory.prototypes import MissingRule

Bools = npt.NDArray[np.bool_]


class FedDaaState(NamedTuple):
    """What the server knows of the time step that lasts, and of the clients in it."""

    mass: Floats32  # (N, models, C) what each model explains of clients' labels, as last heard in this step
    number: int  # of the step, from 0; -1: none yet
    began: int  # the round in which it began
    clustered_in: int  # the round in which clients were judged; -1: never
    learn_since: Ints  # (N,) the round from which on samples are learnt from
    drifted: Bools  # (N,) whose concept was found to have changed
    clusters_found: int  # 0: never looked
    concepts: Ints  # (N,) the true ones when the step began; -1: nobody knows
    scores: Floats  # (2,) precision and recall of the drifts found; nan: nobody knows


@dataclass(frozen=True)
class FedDaa(SoftBank):
    r"""FedDAA: FedRC in time steps. How many models there are, and who learns from older data, is found in each.

    A time step begins every `every` rounds. Everybody who is here is then sent the bank and answers with prototypes
    by its first model (`theory.prototypes`): of the samples of the last step, and of those that arrive now.

    - NCD: as many models as the new prototypes have clusters (`theory.count_clusters`). New models are drawn; if
      there are too many, those stay that explain most.
    - RDLD: a client has drifted if its old and its new prototype are nearest to different centres
      (`theory.real_drift`).
    - DAA: who has drifted learns from this step's samples, who has not also from those of the last step.

    In a step clients train as in `FedRc`; mixtures and label priors begin anew with it.

    Symbols, FedDAA -> here
        :math:`\tau, M`  -> every, max_clusters
        :math:`C^1, C^t` -> first_count, what is found; or `given`, the last one for all later steps

    cluster_count "given" is what the released code does: the true number of models is given, and of NCD only the
    centres are used. Without NCD there are always `first_count` models, without RDLD nobody is taken for drifted,
    without DAA everybody learns from this step's samples alone.
    """

    every: int | None = 40
    """none: a step begins when somebody in the cohort has been alarmed."""
    min_step_rounds: int = 10
    """Rounds that a step lasts at least which an alarm may end."""
    cluster_count: Literal["ncd", "given"] = "ncd"
    given: tuple[int, ...] = (2, 3, 4)
    first_count: int = 2
    max_clusters: int = 9
    single_cluster_threshold: float | None = None
    """One cluster is found if the best silhouette is below; none: never, unless all prototypes are the same."""
    missing: MissingRule = "zero"
    """How classes are treated that a client does not have."""
    output: Output = "logits"
    shrinking: Literal["largest", "matched"] = "largest"
    """Which models stay: those that explain most, or of each cluster's clients the one that explained most."""
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
            first_count="[1, inf)",
            max_clusters="[1, inf)",
            single_cluster_threshold="[-1, 1] or none",
        )
        require(
            len(self.given) > 0 and min(self.given) >= 1,
            f"given must be numbers of models, one for each step, got {list(self.given)}.",
        )

    @property
    def sends_models(self) -> bool:
        return True

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        asks = is_step_start(self.every, roster) and roster.rnd > 0
        return roster.present if asks else roster.present[:0]

    def answer_survey(self, view: SurveyContext) -> tuple[None, Mapping[str, Floats]]:
        """Prototypes of what arrives now, and of what came in the last step."""
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
            concepts=np.full(num_clients, -1, dtype=np.int64),
            scores=np.full(2, np.nan),
        )

    def assign(
        self, notes: FedDaaState, roster: Roster, answers: SurveyResponses, num_models: int
    ) -> BankAssignment:
        mix = np.eye(num_models)
        if notes.number < 0:
            mix = grow_mix(num_models, self._first_num_models)
            notes = notes._replace(number=0, concepts=_concepts(roster))
        elif self._has_ended(notes, roster):
            notes, mix = self._start_step(notes, roster, answers, num_models)
        return assign_all_models(notes, roster, mix, notes.began, notes.learn_since)

    def extra_metrics(self, notes: FedDaaState, roster: Roster) -> Mapping[str, float]:
        """Clusters found at the last look; drifts in the round in which they were found."""
        if notes.clusters_found == 0:
            return {}
        extra_metrics: dict[str, float] = {"clusters_found": notes.clusters_found}
        if notes.clustered_in == roster.rnd:
            extra_metrics["drifts_found"] = int(notes.drifted.sum())
            names = ("drift_precision", "drift_recall")
            scores = zip(names, notes.scores.tolist(), strict=True)
            extra_metrics |= {name: score for name, score in scores if not math.isnan(score)}
        return extra_metrics

    def _has_ended(self, notes: FedDaaState, roster: Roster) -> bool:
        """Is the step over that lasts? Perhaps it was over before, when nobody was here to begin another."""
        if self.every is not None:
            return roster.rnd // self.every > notes.began // self.every
        return (
            is_step_start(self.every, roster) and roster.rnd >= notes.began + self.min_step_rounds
        )

    def _start_step(
        self, notes: FedDaaState, roster: Roster, answers: SurveyResponses, num_models: int
    ) -> tuple[FedDaaState, Floats]:
        began = roster.rnd if self.every is None else roster.rnd // self.every * self.every
        prototype_set = read_prototypes(answers, roster, self.missing)
        found = self._find_clusters(prototype_set)
        old, drifted = self._find_drifts(prototype_set, found, roster.num_clients)
        wanted = self._num_models_for(notes.number + 1, found, num_models)
        mix = grow_mix(num_models, wanted)
        if wanted < num_models:
            kept = self._choose_kept(client_mixtures(notes.mass), wanted, old, found)
            mix = np.eye(num_models)[kept]
        concepts, learn_since = (
            _concepts(roster),
            self._learn_since(notes, began, prototype_set, drifted),
        )
        return FedDaaState(
            mass=np.zeros((roster.num_clients, wanted, notes.mass.shape[2]), dtype=np.float32),
            number=notes.number + 1,
            began=began,
            clustered_in=roster.rnd if found is not None else notes.clustered_in,
            learn_since=learn_since,
            drifted=drifted,
            clusters_found=notes.clusters_found if found is None else found.size,
            concepts=concepts,
            scores=_scores(prototype_set, drifted, notes.concepts, concepts),
        ), mix

    @property
    def _first_num_models(self) -> int:
        return self._num_models_for(0, None, self.first_count)

    def _num_models_for(self, step: int, found: Clustering | None, num_models: int) -> int:
        """How many models there shall be in a step."""
        if not self.use_ncd:
            return self.first_count
        if self.cluster_count == "given":
            return self.given[min(step, len(self.given) - 1)]
        return num_models if found is None else found.size

    def _find_clusters(self, prototype_set: PrototypeSet) -> Clustering | None:
        """Of the new prototypes; none if nobody has said anything."""
        if len(prototype_set.clients) == 0:
            return None
        if not self.use_ncd:
            return cluster(prototype_set.new, self.first_count)
        return count_clusters(prototype_set.new, self.max_clusters, self.single_cluster_threshold)

    def _find_drifts(
        self, prototype_set: PrototypeSet, found: Clustering | None, num_clients: int
    ) -> tuple[Ints, Bools]:
        """(N,) the cluster of each client's old data, -1 if it has none; and whose is another one now."""
        old, drifted = np.full(num_clients, -1, dtype=np.int64), np.zeros(num_clients, dtype=bool)
        if found is not None and prototype_set.has_old.any():
            who = prototype_set.clients[prototype_set.has_old]
            near = real_drift(
                prototype_set.old[prototype_set.has_old],
                prototype_set.new[prototype_set.has_old],
                found.centres,
            )
            old[who], drifted[who] = near.old, near.has_drifted & self.use_rdld
        return old, drifted

    def _learn_since(
        self, notes: FedDaaState, began: int, prototype_set: PrototypeSet, drifted: Bools
    ) -> Ints:
        """(N,) who could not be asked learns from new samples alone, like who has drifted.

        A step that began with an alarm began too late: its samples are those that the client took for new, and
        what is older is all that it holds.
        """
        stable = np.zeros(len(drifted), dtype=bool)
        stable[prototype_set.clients] = ~drifted[prototype_set.clients]
        stable |= not self.use_rdld
        new, old = np.full(len(drifted), began), notes.began
        if self.every is None:
            new[prototype_set.clients], old = prototype_set.new_since, 0
        return np.where(stable & self.use_daa, old, new)

    def _choose_kept(
        self, mixtures: Floats, wanted: int, old: Ints, found: Clustering | None
    ) -> Ints:
        """The models that stay, ascending."""
        from scipy.optimize import linear_sum_assignment

        if self.shrinking == "matched" and found is not None and found.size == wanted:
            used = np.stack([mixtures[old == c].sum(axis=0) for c in range(wanted)])
            return np.sort(linear_sum_assignment(used, maximize=True)[1])
        return np.sort(np.argsort(-mixtures.sum(axis=0), kind="stable")[:wanted])


def _concepts(roster: Roster) -> Ints:
    """(N,) the true ones; -1 if nobody knows."""
    if roster.concepts is None:
        return np.full(roster.num_clients, -1, dtype=np.int64)
    return roster.concepts.astype(np.int64)


def _scores(prototype_set: PrototypeSet, drifted: Bools, before: Ints, now: Ints) -> Floats:
    """(2,) precision and recall of the drifts of those who could be judged; nan if nobody knows the truth."""
    who = prototype_set.clients[prototype_set.has_old]
    if len(who) == 0 or (before[who] < 0).any() or (now[who] < 0).any():
        return np.full(2, np.nan)
    return np.array(precision_recall(drifted[who], before[who] != now[who]))
