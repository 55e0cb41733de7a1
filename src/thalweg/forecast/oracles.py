"""The three oracles of SFedPO: told the truth, told something near it, and learning it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from thalweg import theory
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints, Outlook

Proxy = Literal["kl", "js", "l1", "l2", "l2_squared"]


class FixedProbs(NamedTuple):
    """An oracle that never changes its mind."""

    probs: Floats  # (M,)


@dataclass(frozen=True)
class Exact:
    """Predicts the true state probabilities. All headline tables of SFedPO use it."""

    proxy: Proxy = "kl"
    """How a state's distance from balanced classes is measured."""

    def __post_init__(self) -> None:
        check_literals(self)

    def init(self, truth: Floats, rng: np.random.Generator) -> FixedProbs:
        return FixedProbs(truth)

    def outlook(self, state: FixedProbs, histograms: Floats, importance: Floats) -> Outlook:
        return Outlook(state.probs, importance, heterogeneity(histograms, self.proxy))

    def observe(self, state: FixedProbs, states_seen: Ints) -> FixedProbs:
        return state


@dataclass(frozen=True)
class Noisy:
    """Predicts the truth plus uniform noise, clipped and renormalised; drawn once per client."""

    noise: float = 0.05
    """Half-width of the noise on each probability."""
    perturb_support_only: bool = False
    """Leave states that the client cannot reach at exactly zero."""
    proxy: Proxy = "kl"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, noise="[0, 1]")

    def init(self, truth: Floats, rng: np.random.Generator) -> FixedProbs:
        error = rng.uniform(-self.noise, self.noise, len(truth))
        if self.perturb_support_only:
            error = np.where(truth > 0, error, 0.0)
        return FixedProbs(theory.perturb(truth, error))

    def outlook(self, state: FixedProbs, histograms: Floats, importance: Floats) -> Outlook:
        return Outlook(state.probs, importance, heterogeneity(histograms, self.proxy))

    def observe(self, state: FixedProbs, states_seen: Ints) -> FixedProbs:
        return state


class StateCounts(NamedTuple):
    """How often a client was seen in each state."""

    counts: Ints  # (M,)


@dataclass(frozen=True)
class Bayesian:
    """Learns the state probabilities online: a Dirichlet prior and the states seen so far."""

    prior: float = 1.0
    """Pseudo-visits to every state before anything was seen."""
    proxy: Proxy = "kl"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, prior="(0, inf)")

    def init(self, truth: Floats, rng: np.random.Generator) -> StateCounts:
        return StateCounts(np.zeros(len(truth), dtype=np.int64))

    def outlook(self, state: StateCounts, histograms: Floats, importance: Floats) -> Outlook:
        mean, _ = theory.posterior(np.full(len(state.counts), self.prior), state.counts)
        return Outlook(mean, importance, heterogeneity(histograms, self.proxy))

    def observe(self, state: StateCounts, states_seen: Ints) -> StateCounts:
        return StateCounts(state.counts + np.bincount(states_seen, minlength=len(state.counts)))


def heterogeneity(histograms: Floats, proxy: Proxy) -> Floats:
    """(M,) how far each state's classes are from balanced."""
    return _heterogeneity(
        np.asarray(histograms, dtype=np.float64).tobytes(), len(histograms), proxy
    )


@lru_cache(maxsize=64)
def _heterogeneity(histograms: bytes, num_states: int, proxy: Proxy) -> Floats:
    """Every client asks in every round, and mostly for the same states: so it is remembered."""
    values = theory.divergence_from_uniform(
        np.frombuffer(histograms).reshape(num_states, -1), proxy
    )
    values.flags.writeable = False
    return values
