"""A forecast that learns the latent states from the class histograms of the batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from thalweg import theory
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints, Outlook
from thalweg.forecast.oracles import Proxy, heterogeneity
from thalweg.forecast.visits import (
    RecentVisits,
    add_recent_state,
    estimate_probs,
    observe_visits,
    start_recent,
)


class FoundStates(NamedTuple):
    """The states that one client has found so far, in the order in which they were opened."""

    signatures: Floats  # (M, C) class shares of the batch that opened each state; (0, 0) at first
    counts: Ints  # (M,)
    prior: Floats  # (M,)
    num_unmatched: int  # consecutive batches that matched no state; at `patience` one is opened
    recent: RecentVisits | None = None  # with forgetting: discounted numbers of visits


@dataclass(frozen=True)
class Growing:
    r"""Learns the latent states too: a batch that is far from all known states opens a new one.

    The signature of a state is the class shares of the batch that opened it. A batch belongs to the
    state with the nearest signature. When `patience` consecutive batches were further than
    `new_state_threshold` from all signatures, the last of them opens a state. A new state has no
    visits, and its prior is the mean of the other priors. The probabilities are learned after each
    round as by `Bayesian`, also with `forgetting`, and the outlook contains their variance.

    The samples with which a client starts open its first state, or its first batch if it starts
    with no samples; until then the forecast is one balanced state. A tick without samples counts
    for the most visited state. The forecast uses neither the states of the world nor their
    importance. Each client has its own states: state 3 of one client is unrelated to state 3 of
    another.

    Symbols, SFedPO -> here
        :math:`M`      -> ``len(FoundStates.counts)``, at most `max_states`
        :math:`w`      -> importance, per client
        prior, counts  -> ``FoundStates.prior``, ``FoundStates.counts``

    Differs from the paper: the paper describes this in one paragraph without a formula. A signature
    is not refined, so it is as noisy as one batch; use a larger threshold with few samples per
    tick. The expected Jensen-Shannon distance of two batches of A samples of the same state is
    about (C - 1) / 4A.

    >>> forecast = Growing()
    >>> state = forecast.init(np.ones(1), np.random.default_rng(0))
    >>> for histogram in ([8, 0], [7, 1], [0, 8]):
    ...     state, number = forecast.recognise(state, np.array(histogram))
    ...     print(number, len(state.counts))
    0 1
    0 1
    1 2
    """

    needs_class_labels: ClassVar[bool] = True  # recognises states by class histograms

    new_state_threshold: float = 0.1
    """Distance from all signatures beyond which a batch matches no state (js: at most 0.69)."""
    patience: int = 1
    """Consecutive batches without a match before a state is opened. Values above 1 ignore single
    outliers, but need a stream that stays in a state for a while (``world.stickiness``)."""
    max_states: int = 64
    """Maximum number of states; then the nearest state is used."""
    distance: Literal["js", "l1", "l2"] = "js"
    importance: Literal["uniform", "frequency"] = "uniform"
    """Weight of a state: equal for all states, or its share of the visits."""
    prior: float = 1.0
    """Pseudo-visits to the first state; later states get the mean of the others."""
    prior_strength: float | None = None
    """Recompute the priors after every round as this many pseudo-visits in proportion to the
    visits; none: keep them.
    """
    proxy: Proxy = "kl"
    """Measure of the distance of a state's classes from balanced classes."""
    forgetting: bool = False
    """Weight recent visits more, as far as it predicted the past better (see `Bayesian`)."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            new_state_threshold="(0, inf)",
            patience="[1, inf)",
            max_states="[1, MODELS]",
            prior="(0, inf)",
            prior_strength="(0, inf) or none",
        )

    def init(self, truth: Floats, rng: np.random.Generator) -> FoundStates:
        recent = start_recent(0) if self.forgetting else None
        return FoundStates(np.zeros((0, 0)), np.zeros(0, dtype=np.int64), np.zeros(0), 0, recent)

    def recognise(self, state: FoundStates, histogram: Ints) -> tuple[FoundStates, int]:
        num_states, num_samples = len(state.counts), int(histogram.sum())
        if num_samples == 0:
            return state, int(np.argmax(state.counts)) if num_states else 0
        shares = histogram / num_samples
        if num_states == 0:
            return self._add_state(state, shares), 0
        distances = theory.divergence_between(state.signatures, shares, self.distance)  # (M,)
        nearest = int(np.argmin(distances))
        fits = (
            distances[nearest] <= self.new_state_threshold and state.num_unmatched < self.patience
        )
        if fits or num_states >= self.max_states:
            return state._replace(num_unmatched=0), nearest
        if state.num_unmatched + 1 < self.patience:
            return state._replace(num_unmatched=state.num_unmatched + 1), nearest
        return self._add_state(state, shares), num_states

    def open_next_state(self, state: FoundStates) -> FoundStates:
        """Let the next batch open a state, whatever its classes, unless there are `max_states`.

        Later batches are still matched by their class shares; ties go to the older state.
        """
        return state._replace(num_unmatched=self.patience)

    def signatures(self, state: FoundStates, histograms: Floats) -> Floats:
        num_classes = histograms.shape[1]
        if len(state.counts) == 0:
            return np.full((1, num_classes), 1 / num_classes)
        return state.signatures

    def outlook(self, state: FoundStates, histograms: Floats, importance: Floats) -> Outlook:
        distances = heterogeneity(self.signatures(state, histograms), self.proxy)
        if len(state.counts) == 0:
            return Outlook(np.ones(1), np.ones(1), distances)
        mean, variance = estimate_probs(state.prior, state.counts, state.recent)
        return Outlook(mean, self._importance(state.counts), distances, variance)

    def observe(self, state: FoundStates, states_seen: Ints) -> FoundStates:
        num_states = len(state.counts)
        if num_states == 0:
            return state  # no samples have arrived yet
        if state.recent is not None:
            recent = observe_visits(state.recent, state.prior, state.counts, states_seen)
            state = state._replace(recent=recent)
        counts = state.counts + np.bincount(states_seen, minlength=num_states)
        if self.prior_strength is None or not counts.any():
            return state._replace(counts=counts)
        refreshed = np.where(counts > 0, self.prior_strength * counts / counts.sum(), state.prior)
        return state._replace(counts=counts, prior=refreshed)

    def _add_state(self, state: FoundStates, shares: Floats) -> FoundStates:
        """Return the states with one more, which has this signature."""
        prior = float(state.prior.mean()) if len(state.prior) else self.prior
        return FoundStates(
            signatures=np.vstack([state.signatures.reshape(-1, len(shares)), shares]),
            counts=np.append(state.counts, 0),
            prior=np.append(state.prior, prior),
            num_unmatched=0,
            recent=None if state.recent is None else add_recent_state(state.recent),
        )

    def _importance(self, counts: Ints) -> Floats:
        if self.importance == "frequency" and counts.any():
            return np.asarray(counts / counts.sum(), dtype=np.float64)
        return np.full(len(counts), 1 / len(counts))
