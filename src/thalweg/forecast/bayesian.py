"""State probabilities that are learned from the states seen so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints, Outlook
from thalweg.forecast.oracles import Proxy, heterogeneity
from thalweg.forecast.visits import RecentVisits, estimate_probs, observe_visits, start_recent


class StateCounts(NamedTuple):
    """Number of ticks in which a client's data had each state."""

    counts: Ints  # (M,)
    recent: RecentVisits | None = None  # with forgetting: discounted numbers


@dataclass(frozen=True)
class Bayesian:
    r"""Learns the state probabilities online, with a Dirichlet prior and the states seen so far.

    .. math::  \hat\pi_n(m) = \frac{a + c_{n,m}}{\sum_j (a + c_{n,j})}

    The outlook contains the posterior variance. With ``forgetting=True`` the estimate is a mixture
    over four discounts of the past per tick (1, 31/32, 7/8 and 1/2: the visits of all ticks, and of
    about the last 32, 8 and 2), each weighted by the probability with which it predicted the states
    of all ticks so far. No discount is chosen by hand: the mixture follows probabilities that
    change, and converges to the count of all ticks if they do not (`theory.nested_posteriors`,
    `theory.mix_posteriors`).

    The states are those of the world. `Growing` is the same for states that it recognises itself.

    Symbols, SFedPO -> here
        :math:`a`        -> prior
        :math:`c_{n,m}`  -> ``StateCounts.counts[m]``, ticks of client n in state m

    Differs from the paper: it computes the posterior variance and does not use it; here
    `DdsStationary` does. The paper has no forgetting.

    >>> oracle = Bayesian(prior=1.0)
    >>> state = oracle.init(np.array([0.5, 0.5]), np.random.default_rng(0))
    >>> state = oracle.observe(state, np.array([0, 0]))
    >>> outlook = oracle.outlook(state, np.eye(2), np.array([0.5, 0.5]))
    >>> outlook.probs.tolist(), outlook.variance.tolist()  # 3/4 * 1/4 / 5
    ([0.75, 0.25], [0.0375, 0.0375])
    """

    needs_known_states = True

    uses_true_states: ClassVar[bool] = True  # receives the world's latent states

    prior: float = 1.0
    """Pseudo-count of every state before the first observation."""
    proxy: Proxy = "kl"
    """Measure of the distance of a state's classes from balanced classes."""
    forgetting: bool = False
    """Weight recent visits more, as far as it predicted the past better."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, prior="(0, inf)")

    def init(self, truth: Floats, rng: np.random.Generator) -> StateCounts:
        recent = start_recent(len(truth)) if self.forgetting else None
        return StateCounts(np.zeros(len(truth), dtype=np.int64), recent)

    def outlook(self, state: StateCounts, histograms: Floats, importance: Floats) -> Outlook:
        mean, variance = estimate_probs(self._prior(state), state.counts, state.recent)
        return Outlook(mean, importance, heterogeneity(histograms, self.proxy), variance)

    def observe(self, state: StateCounts, states_seen: Ints) -> StateCounts:
        recent = state.recent
        if recent is not None:
            recent = observe_visits(recent, self._prior(state), state.counts, states_seen)
        counts = state.counts + np.bincount(states_seen, minlength=len(state.counts))
        return StateCounts(counts, recent)

    def _prior(self, state: StateCounts) -> Floats:
        return np.full(len(state.counts), self.prior)
