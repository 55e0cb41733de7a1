from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from thalweg import theory
from thalweg.aggregation.base import MemorySummary
from thalweg.core.claims import Claim, check_names, check_vector, first_reason
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Roster, Updates

SCORE = "shift_score"
MIN_RENEWAL = 1e-6  # used for a memory that never changes, because formulas divide by it


@dataclass(frozen=True)
class ShiftAware:
    r"""SAW (shift-aware weights): less weight for clients whose memory misrepresents the goal.

    .. math::  \psi_n = \max(1/q_n - a_2 s_n + b_2,\ 0), \qquad
               p_n = \psi_n \big/ \textstyle\sum_{j \in S_r} \psi_j

    Each client computes its score :math:`s_n` (`theory.heterogeneity_score`) from its forecast and
    its renewal ratios, and reports this one number with its update. With ``exact=True`` the weights
    minimise the convergence bound itself over the simplex, instead of the closed form.

    Symbols, SFedPO -> here
        :math:`a_2, b_2`        -> slope, offset
        :math:`s_n`             -> the report `shift_score`
        :math:`q_n`             -> Roster.availability, or an estimate from Roster.times_present
        :math:`S_r`             -> clients of the round
        G, :math:`L\eta\sigma^2` -> grad_bound, noise
        K of (17)               -> mismatch="kme": inner products of MemorySummary.embeddings

    Differs from the paper: the sum runs over the participants, as in its algorithm, not over all
    clients as in its formula (``normalise="all"``). If all :math:`\psi_n` are zero, the weights are
    equal.

    Two clients with availability 0.5 and scores 1 and 2:
    :math:`\psi` = (2 - 1 + 0.5, 2 - 2 + 0.5) = (1.5, 0.5).

    >>> from types import SimpleNamespace
    >>> reports = {"shift_score": np.array([1.0, 2.0])}
    >>> updates = SimpleNamespace(clients=np.arange(2), reports=reports)
    >>> roster = SimpleNamespace(availability=np.array([0.5, 0.5]))
    >>> ShiftAware(slope=1.0, offset=0.5).weigh(updates, roster).tolist()
    [0.75, 0.25]
    """

    needs_class_labels: ClassVar[bool] = True  # describes states by their class histograms

    uses_forecast: ClassVar[bool] = True  # reads the outlook of the recipe's forecast

    slope: float = 1.0
    offset: float = 0.5
    grad_bound: float = 1.0
    """Bound of the gradient norm in the score."""
    noise: float = 0.0
    """Gradient noise in the score, a constant; with `exact` it must be positive."""
    exact: bool = False
    normalise: Literal["participants", "all"] = "participants"
    """Clients in the denominator: those of the round, or all. With all, the weights sum to less
    than one and the step is shorter; clients without a score get the mean of the others."""
    availability: Literal["known", "estimated"] = "known"
    """Source of the availability: the scenario, or the rounds in which a client was present."""
    mismatch: Literal["identity", "kme"] = "identity"
    """Distance of a memory from the goal. identity: all states differ equally; kme: states with
    similar embeddings (class histograms by default) can replace each other."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, slope="[0, inf)", grad_bound="(0, inf)", noise="[0, inf)")
        require(math.isfinite(self.offset), f"offset must be a finite number, got {self.offset}.")
        require(
            not self.exact or self.noise > 0,
            f"exact weights need a positive noise, got {self.noise}: without noise one client "
            "would get all the weight.",
        )
        require(
            not self.exact or self.normalise == "participants",
            "exact weights are defined over the participants, got normalise='all'; use "
            "normalise='participants'.",
        )

    def report(self, summary: MemorySummary) -> Mapping[str, float]:
        probs, importance, heterogeneity, *_ = summary.outlook
        outlook = (
            np.asarray(part, dtype=np.float64).tobytes()
            for part in (probs, importance, heterogeneity)
        )
        renewal = np.maximum(summary.renewal, MIN_RENEWAL)
        parts = (renewal.tobytes(), *outlook)
        return {
            SCORE: _score(
                self.grad_bound, self.noise, summary.ticks, self._embeddings(summary), *parts
            )
        }

    def validate_claim(self, claim: Claim) -> str | None:
        """Expect a score that is not negative: a negative one would inflate the client's weight."""
        return first_reason(
            check_names(claim.uploads, SCORE), check_vector(claim.uploads, SCORE, least=-1e-6)
        )

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        scores, availability = updates.reports[SCORE], self._availability(roster)
        if self.exact:
            return theory.saw_weights_exact(scores, availability[updates.clients], self.noise)
        if self.normalise == "participants":
            return theory.saw_weights(
                scores, availability[updates.clients], self.slope, self.offset
            )
        # One entry per client, and one more for each late update of a client with a newer update.
        entries, is_late = updates.clients.copy(), ~updates.is_newest
        entries[is_late] = roster.num_clients + np.arange(is_late.sum())
        known = roster.known.get(SCORE, np.full(roster.num_clients, np.nan))
        counted = np.append(known, scores[is_late])
        counted[entries] = scores
        counted[np.isnan(counted)] = np.nanmean(counted)
        availability = np.append(availability, availability[updates.clients[is_late]])
        return theory.saw_weights(counted, availability, self.slope, self.offset)[entries]

    def _embeddings(self, summary: MemorySummary) -> bytes | None:
        if self.mismatch == "identity" or summary.embeddings is None:
            return None  # without embeddings all states differ equally
        return np.asarray(summary.embeddings, dtype=np.float64).tobytes()

    def _availability(self, roster: Roster) -> Floats:
        if self.availability == "known":
            return roster.availability
        times = roster.times_present.copy()
        times[roster.present] += 1
        return (times + 1) / (roster.rnd + 1 + 2)  # with a uniform prior


@lru_cache(maxsize=4096)
def _score(
    grad_bound: float, noise: float, ticks: int, embeddings: bytes | None, *summary: bytes
) -> float:
    """Return the score; cached, because it stays the same while a client's forecast does."""
    renewal, probs, importance, heterogeneity = (np.frombuffer(part) for part in summary)
    return theory.heterogeneity_score(
        probs,
        renewal,
        importance,
        heterogeneity,
        min(float(probs @ renewal), 1.0),
        ticks,
        grad_bound=grad_bound,
        noise=noise,
        gram=None if embeddings is None else _gram(embeddings, len(probs)),
    )


@lru_cache(maxsize=64)
def _gram(embeddings: bytes, num_states: int) -> Floats:
    """Return (M, M) the inner products of the states' embeddings."""
    rows = np.frombuffer(embeddings).reshape(num_states, -1)
    return rows @ rows.T
