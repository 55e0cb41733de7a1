"""Counts of the latent states that a client has visited, with and without forgetting."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from thalweg import theory
from thalweg.core.types import Floats, Ints

DISCOUNTS = np.array([1.0, 31 / 32, 7 / 8, 1 / 2])
"""Factors per tick: the visits of all ticks, and of about the last 32, 8 and 2 ticks."""


class RecentVisits(NamedTuple):
    """Discounted numbers of visits, for estimates that forget."""

    counts: Floats  # (K - 1, M) for all of `DISCOUNTS` but the first
    log_weights: Floats  # (K,) log of the weight of each discount


def start_recent(num_states: int) -> RecentVisits:
    """Return the counts before the first tick; all discounts have the same weight."""
    number = len(DISCOUNTS)
    return RecentVisits(np.zeros((number - 1, num_states)), np.full(number, -np.log(number)))


def add_recent_state(recent: RecentVisits) -> RecentVisits:
    """Return the counts with one more state, which has not been visited."""
    return recent._replace(counts=np.pad(recent.counts, ((0, 0), (0, 1))))


def observe_visits(
    recent: RecentVisits, prior: Floats, counts: Ints, states_seen: Ints
) -> RecentVisits:
    """Return the discounted counts and the weights of the discounts after some ticks.

    Each discount is weighted by the probability with which it predicted the states, tick by tick.
    `counts` (M,) are the visits before these ticks, without discount.
    """
    stacked = np.vstack([counts, recent.counts])
    log_weights = recent.log_weights
    for state in states_seen.tolist():
        predicted = theory.nested_posteriors(prior, stacked).mean[:, state]
        log_weights = log_weights + np.log(predicted)
        log_weights = log_weights - np.logaddexp.reduce(log_weights)
        stacked = stacked * DISCOUNTS[:, None]
        stacked[:, state] += 1
    return RecentVisits(stacked[1:], log_weights)


def estimate_probs(prior: Floats, counts: Ints, recent: RecentVisits | None) -> theory.Posterior:
    """Return mean and variance of the state probabilities in the next tick.

    Without `recent` nothing is forgotten.
    """
    if recent is None:
        return theory.posterior(prior, counts)
    posteriors = theory.nested_posteriors(prior, np.vstack([counts, recent.counts]))
    return theory.mix_posteriors(posteriors, np.exp(recent.log_weights))
