from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from thalweg.core.capabilities import SurveyContext
from thalweg.core.config import check_literals, check_ranges, choice, get_default
from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints, Roster, Supplies
from thalweg.selection.base import cohort_size, last_known
from thalweg.selection.counters import COUNTERS, LabelCounter, MemoryCounter
from thalweg.selection.label_privacy import LabelPrivacy, frequencies
from thalweg.selection.label_survey import MIX, LabelSurvey, mix_distances

# Names in `Roster.known` that this rule writes.
LAST_CHOSEN, WAITED = "last_chosen", "rounds_waited"
MAX_GATHERED = 200_000  # positions, and label mixes of drawn clients, that are held at once


class Candidates(NamedTuple):
    """The clients that can be drawn, with the numbers that the score of a cohort needs."""

    clients: Ints  # (n,) present, without those that report no data
    mixes: Floats  # (n, C) label mixes; the mean mix where it is not known; C = 0: none is known
    goal: Floats  # (C,)
    losses: Floats  # (n,) relative to the mean; 0 where it is not known


@dataclass(frozen=True)
class BalancedCohort(LabelSurvey):
    r"""Balanced cohort: draw many uniform cohorts and choose the most balanced one.

    Before every round all present clients report their label mix. The server draws `tries` cohorts
    of :math:`s = \max(1, \mathrm{round}(\text{participation} \cdot n))` of the n present clients,
    uniformly without replacement, and chooses the one with the smallest score

    .. math::
        \Big\| \frac1s \sum_{i \in S} r_i - g \Big\|_1
        - \beta \, \frac1s \sum_{i \in S} \frac{\ell_i - \bar\ell}{m}.

    The second term prefers clients with a high last training loss. A client without a known label
    mix counts with the mean mix, and one without a known loss with the mean loss. So does a client
    that was chosen in one of its last :math:`\lceil n / s \rceil - 1` present rounds: a client that
    reports high losses is chosen for them at most as often as by a uniform draw. Clients that
    report no data are not drawn, because most of them would have nothing to train on. Samples may
    arrive after the report, so that such clients are chosen if places are left, and if they have
    waited too long.

    Symbols -> here
        :math:`r_i`          normalised class counts  -> the upload "label_mix", see `counter`
        :math:`g`            goal                     -> `goal`
        :math:`\beta`        bonus for high losses    -> loss_weight
        :math:`\ell_i`       last training loss; :math:`\bar\ell` and m are the means of the
                             losses and of their sizes over the clients whose loss counts
        :math:`k`            longest wait             -> patience

    **No client is starved.** A client is *overdue* if without this round it would not have been
    chosen in :math:`\lceil k n / s \rceil` of its present rounds in a row. Overdue clients enter
    the cohort with certainty, those whose last choice is the longest ago first; the others fill the
    remaining places. Let N be the number of all clients, s at least :math:`s_{\min}`, and let W be
    the largest :math:`\lceil k n / s \rceil`. Then each client is chosen at least once in any

    .. math::  W + \lfloor (N - 1) / s_{\min} \rfloor

    consecutive rounds in which it is present, whatever clients report, and however
    they come and go. Proof: suppose that client i is not chosen in W - 1 such rounds. It is then
    overdue in each further one until it is chosen. If it is not chosen in one of them, all
    places, at least :math:`s_{\min}`, go to clients whose last choice is not later than its own.
    Each of them is then chosen later than i, and never ahead of i again before i is chosen. There
    are at most N - 1, so that this happens at most :math:`\lfloor (N - 1) / s_{\min} \rfloor`
    times.

    Because of rounding, :math:`n / s` is at most 1.5 / participation. A client that is chosen and
    does not respond counts as chosen.

    In a regression there are no labels: clients report nothing, and only losses count.

    Clients 0 and 1 hold only class 0, clients 2 and 3 only class 1. Of the six cohorts of two, the
    four with one client of each kind are balanced:

    >>> known = {"label_mix": np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])}
    >>> roster = Roster(0, np.arange(4), np.ones(4), np.zeros(4, int), known)
    >>> rule = BalancedCohort(participation=0.5)
    >>> rule.choose(roster, np.random.default_rng(0)).tolist()
    [0, 2]

    Client 1 has three times the loss of the others, (3 - 1.5) / 1.5 = 1 above the mean:

    >>> roster.known["loss"] = np.array([1.0, 3.0, 1.0, 1.0])
    >>> rule.compute_scores(rule.find_candidates(roster), np.array([[0, 2], [1, 2]])).round(6)
    array([ 0.166667, -0.166667])
    """

    needs_class_labels: ClassVar[bool] = False  # without labels only losses count

    participation: float = 0.3
    """Share of the present clients that take part."""
    tries: int = 256
    """Number of uniform cohorts of which the best one is chosen; 1: a uniform draw."""
    goal: Literal["balanced", "population"] = "balanced"
    """The wanted label mix: equal shares of all classes that occur, or the mean over clients."""
    loss_weight: float = 0.5
    """Weight of the cohort's mean relative loss against the L1 distance from the goal."""
    patience: float = 3.0
    """Largest wait for a choice, in units of the mean wait of a uniform draw."""
    counter: LabelCounter = choice(COUNTERS, default=MemoryCounter())
    privacy: LabelPrivacy = field(default_factory=LabelPrivacy)

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            participation="(0, 1]",
            tries="[1, 1e6]",
            loss_weight="[0, inf)",
            patience="[1, inf)",
        )
        changed = [
            f"selection.{each.name}={getattr(self, each.name)}"
            for each in fields(self)
            if each.name != "participation" and getattr(self, each.name) != get_default(each)
        ]
        require(
            self.participation < 1 or not changed,
            f"{', '.join(changed)} has no effect with participation=1, because all clients take "
            "part: expected the defaults. Leave it out, or set selection.participation below 1.",
        )

    def check_world(self, supplies: Supplies, num_classes: int) -> None:
        if num_classes > 1:
            return
        require(
            self.loss_weight > 0,
            "selection=balanced-cohort: the data have no classes, so that only losses count, but "
            f"loss_weight is {self.loss_weight:g}. Set selection.loss_weight to more than 0, or "
            "selection=uniform.",
        )
        defaults = BalancedCohort()
        for name in ("goal", "counter", "privacy"):
            require(
                getattr(self, name) == getattr(defaults, name),
                f"selection.{name} has no effect, because the data have no classes and clients "
                f"report no label mix, got {getattr(self, name)!r}. Leave it out.",
            )

    @property
    def surveys_labels(self) -> bool:  # type: ignore[override]
        """Whether clients are surveyed: there is no choice if all of them take part."""
        return self.participation < 1

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return super().choose_surveyed(roster, rng) if self.surveys_labels else roster.present[:0]

    @property
    def monitors(self) -> str:
        """What the choice depends on; nothing if all clients are chosen."""
        if self.participation == 1:
            return ""
        losses = " and training losses" if self.uses_losses else ""
        return f"the label mixes{losses} of clients (selection)"

    @property
    def uses_losses(self) -> bool:
        """Whether the choice depends on the training losses of clients."""
        return self.loss_weight > 0 and self.participation < 1

    def answer_survey(self, context: SurveyContext) -> tuple[Any, Mapping[str, Floats]]:
        """Report the label mix; nothing in a regression."""
        if context.num_classes == 1:
            return context.label_counts, {}
        return super().answer_survey(context)

    def choose(self, roster: Roster, rng: np.random.Generator) -> Ints:
        size = cohort_size(self.participation, len(roster.present))
        if size == len(roster.present):
            return np.sort(roster.present)
        candidates = self.find_candidates(roster)
        first = self._find_overdue(roster)
        if len(first) > size:
            last = _read(roster, LAST_CHOSEN, -1.0)[first]
            first = first[np.lexsort((rng.random(len(first)), last))][:size]
        has_data = np.isin(first, candidates.clients)
        certain, without_data = first[has_data], first[~has_data]
        places = size - len(without_data)
        if len(candidates.clients) > places:
            chosen = self._draw_best(candidates, certain, places, rng)
        else:  # all that have data, and others, which may receive some in this round
            chosen = candidates.clients
            others = np.setdiff1d(roster.present, np.concatenate([chosen, without_data]))
            fill = rng.choice(others, min(places - len(chosen), len(others)), replace=False)
            without_data = np.concatenate([without_data, fill])
        return np.sort(np.concatenate([chosen, without_data]))

    def _draw_best(
        self, candidates: Candidates, first: Ints, size: int, rng: np.random.Generator
    ) -> Ints:
        """Return the best drawn cohort of `size` candidates that contains the clients `first`."""
        if len(first) == size:
            return first
        certain = np.flatnonzero(np.isin(candidates.clients, first))
        others = np.delete(np.arange(len(candidates.clients)), certain)
        best, lowest = others[:0], math.inf
        for drawn in draw_cohorts(len(others), size - len(certain), self.tries, rng):
            for part in np.array_split(drawn, min(drawn.size // MAX_GATHERED + 1, len(drawn))):
                cohorts = others[part]
                scores = self.compute_scores(candidates, cohorts, certain)
                if scores.min() < lowest or not len(best):
                    best, lowest = cohorts[scores.argmin()], float(scores.min())
        chosen: Ints = candidates.clients[np.concatenate([certain, best])]
        return chosen

    def find_candidates(self, roster: Roster) -> Candidates:
        """Return the clients that can be drawn in this round."""
        table = roster.known.get(MIX)
        losses = self._read_losses(roster)
        if table is None or np.isnan(table).all():
            clients = roster.present
            mixes, goal = np.empty((len(clients), 0)), np.empty(0)
        else:
            rows = table[roster.present]
            has_none = (rows == 0).all(1)
            clients, rows = roster.present[~has_none], rows[~has_none]
            is_unknown = np.isnan(rows)
            if is_unknown.any():
                rows = np.where(is_unknown, frequencies(np.nansum(table, axis=0)), rows)
            mixes, goal = rows, self._find_goal(table)
        return Candidates(clients, mixes, goal, _relative(losses[clients]))

    def _read_losses(self, roster: Roster) -> Floats:
        """Return (N,) the losses that count; nan for clients that were chosen recently."""
        num_present = len(roster.present)
        mean_wait = math.ceil(num_present / max(cohort_size(self.participation, num_present), 1))
        is_recent = _read(roster, WAITED, math.inf) + 1 < mean_wait
        return np.where(is_recent, np.nan, last_known(roster, "loss"))

    def _find_goal(self, table: Floats) -> Floats:
        """Return (C,) the wanted label mix, given the mixes (N, C) that clients have reported."""
        if self.goal == "population":
            return frequencies(np.nansum(table, axis=0))
        return frequencies((table > 0).any(axis=0).astype(float))

    def compute_scores(
        self,
        candidates: Candidates,
        cohorts: Ints,
        certain: Ints = np.empty(0, dtype=np.int64),  # noqa: B008
    ) -> Floats:
        """Return (T,) the score of cohorts (T, s), given by their positions among the candidates.

        The clients `certain` are added to each of them.
        """
        size = cohorts.shape[1] + len(certain)
        mixes = candidates.mixes[cohorts].sum(1) + candidates.mixes[certain].sum(0)
        losses = candidates.losses[cohorts].sum(1) + candidates.losses[certain].sum()
        distances = np.abs(mixes / size - candidates.goal).sum(1)
        scores: Floats = distances - self.loss_weight * losses / size
        return scores

    def record_choice(self, roster: Roster, chosen: Ints) -> Mapping[str, Floats]:
        """Return (N,) the round in which each client was last chosen, and how long it has waited.

        The wait is the number of rounds in which it was present since then.
        """
        last, waited = _read(roster, LAST_CHOSEN, -1.0), _read(roster, WAITED, 0.0)
        waited[roster.present] += 1
        last[chosen], waited[chosen] = roster.rnd, 0
        return {LAST_CHOSEN: last, WAITED: waited}

    def extra_metrics(self, roster: Roster, cohort: Ints) -> Mapping[str, float | list[float]]:
        """Return the label mix of the cohort, and how many of its clients were overdue.

        Clients without a known label mix are left out of the mix.
        """
        overdue = self._find_overdue(roster)
        metrics: dict[str, float | list[float]] = {
            "overdue": float(np.isin(overdue, cohort).sum()) if len(overdue) else 0.0,
            **self.epsilon_metrics(roster),
        }
        if MIX not in roster.known:
            return metrics
        rows = roster.known[MIX][cohort]
        rows = rows[(rows > 0).any(1)]
        if len(rows) > 0:
            mix = rows.mean(0)
            metrics["cohort_mix"] = mix.tolist()
            metrics |= mix_distances("cohort_mix", mix - self._find_goal(roster.known[MIX]))
        return metrics

    def _find_overdue(self, roster: Roster) -> Ints:
        """Return the present clients that have waited too long to wait another round."""
        num_present = len(roster.present)
        size = cohort_size(self.participation, num_present)
        longest = math.ceil(self.patience * num_present / max(size, 1))
        return roster.present[_read(roster, WAITED, 0.0)[roster.present] + 1 >= longest]


def draw_cohorts(num: int, size: int, tries: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Yield uniform cohorts of `size` of `num` positions, `tries` in total, in parts (n, size).

    Each cohort is uniform among all of its size. A permutation is cut into several cohorts, which
    have no common position. A part has at most `MAX_GATHERED` positions, or one permutation. The
    size of the parts has no influence on the cohorts.

    >>> np.concatenate(list(draw_cohorts(10, 3, 7, np.random.default_rng(0)))).shape
    (7, 3)
    """
    per_permutation = num // size
    if per_permutation >= tries:
        yield rng.choice(num, (tries, size), replace=False)
        return
    left = math.ceil(tries / per_permutation)
    while left:
        rows = min(left, max(MAX_GATHERED // num, 1))
        permuted = rng.permuted(np.broadcast_to(np.arange(num), (rows, num)), axis=1)
        yield permuted[:, : per_permutation * size].reshape(-1, size)[:tries]
        left, tries = left - rows, tries - rows * per_permutation


def _read(roster: Roster, name: str, default: float) -> Floats:
    """Return (N,) a copy of stored numbers, with a default where none are stored."""
    values = roster.known.get(name)
    return np.full(roster.num_clients, default) if values is None else values.copy()


def _relative(losses: Floats) -> Floats:
    """Return how far losses are above their mean, relative to their mean size; 0: not known.

    >>> _relative(np.array([1.0, 3.0, np.nan])).tolist()
    [-0.5, 0.5, 0.0]
    """
    is_known = np.isfinite(losses)
    known = losses[is_known]
    relative, scale = np.zeros(len(losses)), np.abs(known).sum() / max(len(known), 1)
    if scale > 0:
        relative[is_known] = (known - known.mean()) / scale
    return relative
