"""An oracle that is not told which states there are, and opens one when a batch fits none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from thalweg import theory
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints, Outlook
from thalweg.forecast.oracles import Proxy, heterogeneity


class FoundStates(NamedTuple):
    """The states that one client has found so far, in the order of finding them."""

    signatures: Floats  # (M, C) class shares of the batch that opened each state; (0, 0) at first
    counts: Ints  # (M,)
    prior: Floats  # (M,)
    num_unmatched: (
        int  # batches in a row that fitted no state; `patience`: the next one opens a state
    )


@dataclass(frozen=True)
class Growing:
    r"""Learns the states as well: a batch that resembles none of them opens a new one.

    A state's signature is the class mix of the batch that opened it. A batch belongs to the state
    with the nearest signature; when `patience` batches in a row were further than
    `new_state_threshold` from all of them, the last one opens a state, with no visits and the mean
    of the others' priors. Probabilities are then learnt as by `Bayesian`, after each round.

    The first state is opened by what a client starts with, or by its first batch if it starts with
    nothing; until then it expects one balanced state. A tick without samples counts for the state
    visited most. The oracle sees neither the world's states nor their importance, so a client's
    states are its own: state 3 of one client is not state 3 of another.

    Symbols, SFedPO -> here
        M, new when a batch fits none  -> len(Found.visits), at most max_states
        :math:`w`                      -> importance, per client
        prior, counts                  -> Found.prior, Found.visits

    Differs from the paper: it has one paragraph on this and no formula. A signature is never
    refined, so it is as noisy as one batch: with few samples per tick choose a larger threshold. The
    expected Jensen-Shannon distance of two batches of A samples out of the same state is about
    (C - 1) / 4A.
    """

    new_state_threshold: float = 0.1
    """Distance from every signature beyond which a batch is strange; js is in nats, below 0.69."""
    patience: int = 1
    """Strange batches in a row before a state is opened. Above 1 it takes a stream that stays in a
    state for a while (``world.stickiness``), and single odd batches no longer count."""
    max_states: int = 64
    """With so many states no more are opened, and the nearest one is taken."""
    distance: Literal["js", "l1", "l2"] = "js"
    importance: Literal["uniform", "frequency"] = "uniform"
    """How much a state matters: all the same, or as often as it was visited."""
    prior: float = 1.0
    """Pseudo-visits to the first state; a later one gets the mean of what the others have."""
    prior_strength: float | None = None
    """Refresh the priors after every round: this many pseudo-visits, shared as the visits are;
    none: leave them."""
    proxy: Proxy = "kl"

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            new_state_threshold="(0, inf)",
            patience="[1, inf)",
            max_states="[1, inf)",
            prior="(0, inf)",
            prior_strength="(0, inf) or none",
        )

    def init(self, truth: Floats, rng: np.random.Generator) -> FoundStates:
        return FoundStates(np.zeros((0, 0)), np.zeros(0, dtype=np.int64), np.zeros(0), 0)

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
        """The next batch opens a state, whatever it resembles, unless there are `max_states` already.

        Batches are told apart by their class mix all the same, and one that is as near to two states is taken for
        the older one.
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
        mean, _ = theory.posterior(state.prior, state.counts)
        return Outlook(mean, self._importance(state.counts), distances)

    def observe(self, state: FoundStates, states_seen: Ints) -> FoundStates:
        num_states = len(state.counts)
        if num_states == 0:
            return state  # nothing has arrived yet, so there is nothing to count
        counts = state.counts + np.bincount(states_seen, minlength=num_states)
        if self.prior_strength is None or not counts.any():
            return state._replace(counts=counts)
        refreshed = np.where(counts > 0, self.prior_strength * counts / counts.sum(), state.prior)
        return state._replace(counts=counts, prior=refreshed)

    def _add_state(self, state: FoundStates, shares: Floats) -> FoundStates:
        """One more state, with this signature."""
        prior = float(state.prior.mean()) if len(state.prior) else self.prior
        return FoundStates(
            signatures=np.vstack([state.signatures.reshape(-1, len(shares)), shares]),
            counts=np.append(state.counts, 0),
            prior=np.append(state.prior, prior),
            num_unmatched=0,
        )

    def _importance(self, counts: Ints) -> Floats:
        if self.importance == "frequency" and counts.any():
            return np.asarray(counts / counts.sum(), dtype=np.float64)
        return np.full(len(counts), 1 / len(counts))
