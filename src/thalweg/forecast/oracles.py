"""The prediction oracles of SFedPO that start from the truth: exact and noisy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from thalweg import theory
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.types import Floats, Ints, Outlook

Proxy = Literal["kl", "js", "l1", "l2", "l2_squared"]


class FixedProbs(NamedTuple):
    """State probabilities that do not change during the run."""

    probs: Floats  # (M,)


@dataclass(frozen=True)
class Exact:
    r"""Predicts the true state probabilities of each client, as in the main tables of SFedPO.

    Symbols, SFedPO -> here
        :math:`\pi_n(m)`  -> ``Outlook.probs[m]``, the probability of state m at client n
        :math:`w_m`        -> ``Outlook.importance[m]``
        :math:`h_m`        -> the distance of state m's classes from balanced classes (`proxy`)

    >>> oracle = Exact()
    >>> state = oracle.init(np.array([0.25, 0.75]), np.random.default_rng(0))
    >>> oracle.outlook(state, np.eye(2), np.array([0.5, 0.5])).probs.tolist()
    [0.25, 0.75]
    """

    needs_known_states = True

    uses_true_states: ClassVar[bool] = True  # receives the world's latent states

    proxy: Proxy = "kl"
    """Measure of the distance of a state's classes from balanced classes."""

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
    r"""Predicts the true state probabilities with uniform noise, drawn once per client.

    .. math::  \hat\pi_n(m) \propto \max(\pi_n(m) + u_{n,m}, 0), \quad u_{n,m} \sim U(-e, e)

    Symbols, SFedPO -> here
        :math:`e`  -> noise

    >>> oracle = Noisy(noise=0.0)
    >>> state = oracle.init(np.array([0.25, 0.75]), np.random.default_rng(0))
    >>> state.probs.tolist()
    [0.25, 0.75]
    """

    needs_known_states = True

    uses_true_states: ClassVar[bool] = True  # receives the world's latent states

    noise: float = 0.05
    """Half-width of the noise on each probability."""
    perturb_support_only: bool = False
    """Keep states of probability zero at exactly zero."""
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


def heterogeneity(histograms: Floats, proxy: Proxy) -> Floats:
    """(M,) the distance of each state's classes from balanced classes."""
    return _heterogeneity(
        np.asarray(histograms, dtype=np.float64).tobytes(), len(histograms), proxy
    )


@lru_cache(maxsize=64)
def _heterogeneity(histograms: bytes, num_states: int, proxy: Proxy) -> Floats:
    """Cached, because all clients compute it in every round, mostly for the same states."""
    values = theory.divergence_from_uniform(
        np.frombuffer(histograms).reshape(num_states, -1), proxy
    )
    values.flags.writeable = False
    return values
