from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.aggregation.bank import Arranged
from thalweg.aggregation.judging import (
    Judgement,
    Output,
    doubt_prototypes,
    from_answers,
    own_prototypes,
)
from thalweg.aggregation.soft import Prediction, SoftBank, all_models, grown, mixtures_of
from thalweg.aggregation.steps import begins
from thalweg.core.claims import Claim
from thalweg.core.config import check_ranges, check_words
from thalweg.core.errors import require
from thalweg.core.talk import View
from thalweg.core.types import Answers, Floats, Floats32, Ints, Roster
from thalweg.theory import Clustering, cluster, count_clusters, precision_recall, real_drift
from thalweg.theory.prototypes import Missing

Bools = npt.NDArray[np.bool_]


class Steps(NamedTuple):
    """What the server knows of the time step that lasts, and of the clients in it."""

    mass: Floats32  # (N, models, C) what each model explains of clients' labels, as last heard in this step
    number: int  # of the step, from 0; -1: none yet
    began: int  # the round in which it began
    judged_in: int  # the round in which clients were judged; -1: never
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
    shortest: int = 10
    """Rounds that a step lasts at least which an alarm may end."""
    cluster_count: Literal["ncd", "given"] = "ncd"
    given: tuple[int, ...] = (2, 3, 4)
    first_count: int = 2
    max_clusters: int = 9
    single_cluster_threshold: float | None = None
    """One cluster is found if the best silhouette is below; none: never, unless all prototypes are the same."""
    missing: Missing = "zero"
    """How classes are treated that a client does not have."""
    output: Output = "logits"
    shrinking: Literal["largest", "matched"] = "largest"
    """Which models stay: those that explain most, or of each cluster's clients the one that explained most."""
    use_ncd: bool = True
    use_rdld: bool = True
    use_daa: bool = True
    prediction: Prediction = "mixture"

    def __post_init__(self) -> None:
        check_words(self)
        check_ranges(
            self,
            every="[1, inf) or none",
            shortest="[1, inf)",
            first_count="[1, inf)",
            max_clusters="[1, inf)",
            single_cluster_threshold="[-1, 1] or none",
        )
        require(
            len(self.given) > 0 and min(self.given) >= 1,
            f"given must be numbers of models, one for each step, got {list(self.given)}.",
        )

    @property
    def shows_models(self) -> bool:
        return True

    def whom(self, roster: Roster, rng: np.random.Generator) -> Ints:
        asks = begins(self.every, roster) and roster.rnd > 0
        return roster.here if asks else roster.here[:0]

    def answer(self, view: View) -> tuple[None, Mapping[str, Floats]]:
        """Prototypes of what arrives now, and of what came in the last step."""
        began = None if self.every is None else view.rnd - self.every
        return None, own_prototypes(view, began, self.output)

    def doubt(self, claim: Claim) -> str | None:
        return doubt_prototypes(claim) if claim.is_answer else super().doubt(claim)

    def init(self, num_clients: int, num_classes: int) -> Steps:
        return Steps(
            mass=np.zeros((num_clients, self._first, num_classes), dtype=np.float32),
            number=-1,
            began=0,
            judged_in=-1,
            learn_since=np.zeros(num_clients, dtype=np.int64),
            drifted=np.zeros(num_clients, dtype=bool),
            clusters_found=0,
            concepts=np.full(num_clients, -1, dtype=np.int64),
            scores=np.full(2, np.nan),
        )

    def arrange(self, notes: Steps, roster: Roster, answers: Answers, num_models: int) -> Arranged:
        mix = np.eye(num_models)
        if notes.number < 0:
            mix = grown(num_models, self._first)
            notes = notes._replace(number=0, concepts=_concepts(roster))
        elif self._has_ended(notes, roster):
            notes, mix = self._next_step(notes, roster, answers, num_models)
        return all_models(notes, roster, mix, notes.began, notes.learn_since)

    def remark(self, notes: Steps, roster: Roster) -> Mapping[str, float]:
        """Clusters found at the last look; drifts in the round in which they were found."""
        if notes.clusters_found == 0:
            return {}
        remarks: dict[str, float] = {"clusters_found": notes.clusters_found}
        if notes.judged_in == roster.rnd:
            remarks["drifts_found"] = int(notes.drifted.sum())
            names = ("drift_precision", "drift_recall")
            scores = zip(names, notes.scores.tolist(), strict=True)
            remarks |= {name: score for name, score in scores if not math.isnan(score)}
        return remarks

    def _has_ended(self, notes: Steps, roster: Roster) -> bool:
        """Is the step over that lasts? Perhaps it was over before, when nobody was here to begin another."""
        if self.every is not None:
            return roster.rnd // self.every > notes.began // self.every
        return begins(self.every, roster) and roster.rnd >= notes.began + self.shortest

    def _next_step(
        self, notes: Steps, roster: Roster, answers: Answers, num_models: int
    ) -> tuple[Steps, Floats]:
        began = roster.rnd if self.every is None else roster.rnd // self.every * self.every
        judged = from_answers(answers, roster, self.missing)
        found = self._clusters(judged)
        old, drifted = self._drifts(judged, found, roster.num_clients)
        wanted = self._wanted(notes.number + 1, found, num_models)
        mix = grown(num_models, wanted)
        if wanted < num_models:
            kept = self._kept(mixtures_of(notes.mass), wanted, old, found)
            mix = np.eye(num_models)[kept]
        concepts, learn_since = _concepts(roster), self._learn_since(notes, began, judged, drifted)
        return Steps(
            mass=np.zeros((roster.num_clients, wanted, notes.mass.shape[2]), dtype=np.float32),
            number=notes.number + 1,
            began=began,
            judged_in=roster.rnd if found is not None else notes.judged_in,
            learn_since=learn_since,
            drifted=drifted,
            clusters_found=notes.clusters_found if found is None else found.size,
            concepts=concepts,
            scores=_scores(judged, drifted, notes.concepts, concepts),
        ), mix

    @property
    def _first(self) -> int:
        return self._wanted(0, None, self.first_count)

    def _wanted(self, step: int, found: Clustering | None, num_models: int) -> int:
        """How many models there shall be in a step."""
        if not self.use_ncd:
            return self.first_count
        if self.cluster_count == "given":
            return self.given[min(step, len(self.given) - 1)]
        return num_models if found is None else found.size

    def _clusters(self, judged: Judgement) -> Clustering | None:
        """Of the new prototypes; none if nobody has said anything."""
        if len(judged.clients) == 0:
            return None
        if not self.use_ncd:
            return cluster(judged.new, self.first_count)
        return count_clusters(judged.new, self.max_clusters, self.single_cluster_threshold)

    def _drifts(
        self, judged: Judgement, found: Clustering | None, num_clients: int
    ) -> tuple[Ints, Bools]:
        """(N,) the cluster of each client's old data, -1 if it has none; and whose is another one now."""
        old, drifted = np.full(num_clients, -1, dtype=np.int64), np.zeros(num_clients, dtype=bool)
        if found is not None and judged.has_old.any():
            who = judged.clients[judged.has_old]
            near = real_drift(judged.old[judged.has_old], judged.new[judged.has_old], found.centres)
            old[who], drifted[who] = near.old, near.drifted & self.use_rdld
        return old, drifted

    def _learn_since(self, notes: Steps, began: int, judged: Judgement, drifted: Bools) -> Ints:
        """(N,) who could not be asked learns from new samples alone, like who has drifted.

        A step that began with an alarm began too late: its samples are those that the client took for new, and
        what is older is all that it holds.
        """
        stable = np.zeros(len(drifted), dtype=bool)
        stable[judged.clients] = ~drifted[judged.clients]
        stable |= not self.use_rdld
        new, old = np.full(len(drifted), began), notes.began
        if self.every is None:
            new[judged.clients], old = judged.new_since, 0
        return np.where(stable & self.use_daa, old, new)

    def _kept(self, mixtures: Floats, wanted: int, old: Ints, found: Clustering | None) -> Ints:
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


def _scores(judged: Judgement, drifted: Bools, before: Ints, now: Ints) -> Floats:
    """(2,) precision and recall of the drifts of those who could be judged; nan if nobody knows the truth."""
    who = judged.clients[judged.has_old]
    if len(who) == 0 or (before[who] < 0).any() or (now[who] < 0).any():
        return np.full(2, np.nan)
    return np.array(precision_recall(drifted[who], before[who] != now[who]))
