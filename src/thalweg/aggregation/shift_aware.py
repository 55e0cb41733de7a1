from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from thalweg import theory
from thalweg.aggregation.base import MemorySummary
from thalweg.core.claims import Claim, check_vector
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Roster, Updates

SCORE = "shift_score"
MIN_RENEWAL = 1e-6  # the formulas divide by the renewal; a memory that never changes is this


@dataclass(frozen=True)
class ShiftAware:
    r"""Shift-aware weights (SAW): clients whose data will mislead the model count less.

    .. math::  \psi_n = \max(1/q_n - a_2 s_n + b_2,\ 0), \qquad p_n = \psi_n \big/ \textstyle\sum_{j \in S_r} \psi_j

    The score :math:`s_n` (`theory.heterogeneity_score`) is computed by the client from its forecast
    and its renewal ratios, and is one number beside its update. With ``exact=True`` the bound
    itself is minimised over the simplex instead of the closed form.

    Symbols, SFedPO -> here
        :math:`a_2, b_2`        -> slope, offset
        G, :math:`L\eta\sigma^2` -> grad_bound, noise
        :math:`q_n`             -> Roster.availability, or estimated from who was seen
        K of (17)               -> mismatch="kme": products of the rows of Age.embeddings

    Differs from the paper: the sum runs over the participants, as in its algorithm, not over all
    clients as in its formula (`normalise`).
    """

    slope: float = 1.0
    offset: float = 0.5
    grad_bound: float = 1.0
    noise: float = 0.0
    """The constant gradient noise in the score; with `exact` it must be positive."""
    exact: bool = False
    normalise: Literal["participants", "all"] = "participants"
    """all: divide by the sum over every client, which shrinks the step; a client never heard of
    counts as the average of the others."""
    availability: Literal["known", "estimated"] = "known"
    mismatch: Literal["identity", "kme"] = "identity"
    """How far a memory is from the goal. identity: states have nothing in common; kme: states with
    similar embeddings (`MemorySummary.embeddings`, class histograms by default) can stand in for each other."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, slope="[0, inf)", grad_bound="(0, inf)", noise="[0, inf)")
        require(math.isfinite(self.offset), f"offset must be a finite number, got {self.offset}.")
        require(
            not self.exact or self.noise > 0,
            "exact weights need a positive noise: without it one client would get all the weight.",
        )
        require(
            not self.exact or self.normalise == "participants",
            "exact weights are defined over the participants; use normalise='participants'.",
        )

    def report(self, summary: MemorySummary) -> Mapping[str, float]:
        outlook = (np.asarray(part, dtype=np.float64).tobytes() for part in summary.outlook)
        renewal = np.maximum(summary.renewal, MIN_RENEWAL)
        parts = (renewal.tobytes(), *outlook)
        return {
            SCORE: _score(
                self.grad_bound, self.noise, summary.ticks, self._embeddings(summary), *parts
            )
        }

    def validate_claim(self, claim: Claim) -> str | None:
        """A score below zero, but for rounding, would make a client count more than any honest one."""
        return check_vector(claim.uploads, SCORE, least=-1e-6)

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        scores, availability = updates.reports[SCORE], self._availability(roster)
        if self.exact:
            return theory.saw_weights_exact(scores, availability[updates.clients], self.noise)
        if self.normalise == "participants":
            return theory.saw_weights(
                scores, availability[updates.clients], self.slope, self.offset
            )
        # One place per client, and one more for every late update of a client that has a newer one.
        places, extra = updates.clients.copy(), ~updates.is_newest
        places[extra] = roster.num_clients + np.arange(extra.sum())
        everyone = roster.known.get(SCORE, np.full(roster.num_clients, np.nan))
        everyone = np.append(everyone, scores[extra])
        everyone[places] = scores
        everyone[np.isnan(everyone)] = np.nanmean(everyone)
        availability = np.append(availability, availability[updates.clients[extra]])
        return theory.saw_weights(everyone, availability, self.slope, self.offset)[places]

    def _embeddings(self, summary: MemorySummary) -> bytes | None:
        if self.mismatch == "identity" or summary.embeddings is None:
            return None  # states of which nothing is known have nothing in common
        return np.asarray(summary.embeddings, dtype=np.float64).tobytes()

    def _availability(self, roster: Roster) -> Floats:
        if self.availability == "known":
            return roster.availability
        seen = roster.times_present.copy()
        seen[roster.present] += 1
        return (seen + 1) / (roster.rnd + 1 + 2)


@lru_cache(maxsize=4096)
def _score(
    grad_bound: float, noise: float, ticks: int, embeddings: bytes | None, *summary: bytes
) -> float:
    """The score of one outlook and renewal; a client whose oracle does not learn keeps its own."""
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
    """(M, M) inner products of the states' embeddings."""
    rows = np.frombuffer(embeddings).reshape(num_states, -1)
    return rows @ rows.T
