from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from thalweg import theory
from thalweg.core.config import check_ranges
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, MemoryContext, Outlook
from thalweg.memory.base import RenewsShare


@dataclass(frozen=True)
class DdsStationary(RenewsShare):
    r"""DDS without tunables: the shares that bring the memory's long-run mixture next to the goal.

    As `Dds`, the policy renews the share :math:`\alpha_m` of the memory in latent state m, and the
    budget on average. The shares minimise the expected squared distance of the memory's mean
    signature from the goal, after many ticks:

    .. math::
        \min_{0 \le \alpha_m \le 1} E\lVert x \rVert^2
        \quad \text{with} \quad \sum_m \hat\pi_m \alpha_m = \alpha, \qquad
        E\lVert x \rVert^2 = \frac{\sum_m \hat\pi_m \alpha_m^2 \lVert g_m \rVert^2
            + \frac{2}{\alpha} (y - z) \cdot y}
            {\sum_m \hat\pi_m \alpha_m (2 - \alpha_m)}

    with :math:`y = \sum_m \hat\pi_m \alpha_m g_m` and
    :math:`z = \sum_m \hat\pi_m \alpha_m^2 g_m`. The signature of a state is its class shares, and
    the goal is balanced classes; a world whose states have embeddings has another goal
    (`StateTable.goal`). The derivation is in `theory.stationary_distance`, the solution in
    `theory.dds_ratios_stationary`. States that have the same signature get the same share, and
    with balanced states only, every share is the budget.

    If the forecast has a variance, the expectation is also over the probabilities, as if they had
    a Dirichlet posterior with the same mean and total variance.

    Symbols, SFedPO -> here
        :math:`\alpha` (per client)  -> budget
        :math:`\hat\pi`              -> Outlook.probs, with Outlook.variance
        :math:`g_m`                  -> Outlook.deviations

    Differs from the paper: it bounds the distance by a constant in (65) and tunes what remains
    (:math:`a_1, b_1`, G). Importance and proxies of heterogeneity are not used. The states of
    successive ticks are assumed to be independent, as in the paper's derivation.

    The first state occurs in three of four ticks and has class 0 only, the second is balanced. In
    the second state everything is renewed, in the first (1/2 - 1/4) / (3/4) of the memory:

    >>> from thalweg.memory import make_context
    >>> outlook = Outlook(
    ...     probs=np.array([0.75, 0.25]),
    ...     importance=np.array([0.5, 0.5]),
    ...     heterogeneity=np.array([1.0, 0.0]),
    ...     deviations=np.array([[0.5, -0.5], [0.0, 0.0]]),
    ... )
    >>> context = make_context(capacity=9, held=9, num_new=9, state=0, outlook=outlook)
    >>> policy = DdsStationary(budget=0.5)
    >>> policy.predict_renewal(None, context).round(6).tolist()
    [0.333333, 1.0]
    >>> _, kept = policy.keep(None, context, np.random.default_rng(0))
    >>> (kept >= 9).sum().item()  # three of nine samples are new
    3
    """

    needs_class_labels: ClassVar[bool] = True  # describes states by their class histograms

    uses_forecast: ClassVar[bool] = True  # reads the outlook and the state of the recipe's forecast
    uses_heterogeneity: ClassVar[bool] = False

    budget: float = 0.5
    """Expected share of the memory that one tick renews."""
    stochastic_rounding: bool = False
    """Round the number of renewed samples at random, so that its mean is exact."""

    def __post_init__(self) -> None:
        check_ranges(self, budget="(0, 1]")

    def predict_renewal(self, state: None, context: MemoryContext) -> Floats:
        outlook = context.outlook
        if outlook.deviations is None:
            raise ConfigError(
                "memory=dds-stationary needs the signatures of the latent states, but the outlook "
                "has no deviations. Set Outlook.deviations, or use memory=dds."
            )
        ratios = _ratios(
            np.asarray(outlook.probs, dtype=np.float64).tobytes(),
            _share(np.asarray(outlook.deviations, dtype=np.float64).tobytes()),
            self.budget,
            estimate_spread(outlook),
        )
        return np.minimum(ratios, context.num_new / context.capacity)


def estimate_spread(outlook: Outlook) -> float:
    r"""Return :math:`\rho` of the Dirichlet posterior with the outlook's total variance.

    .. math::  \rho = \sum_m \mathrm{Var}_m \big/ \sum_m \hat\pi_m (1 - \hat\pi_m)

    It is 1 / (1 + A) after A visits and pseudo-visits in total, and 0 without a variance.

    >>> mean, variance = theory.posterior(prior=[1, 1], counts=[2, 0])
    >>> round(estimate_spread(Outlook(mean, mean, mean, variance)), 6)  # 1 / (1 + 4)
    0.2
    """
    if outlook.variance is None:
        return 0.0
    largest = float((outlook.probs * (1 - outlook.probs)).sum())
    return min(float(outlook.variance.sum()) / largest, 1.0) if largest > 0 else 0.0


@lru_cache(maxsize=16)
def _share(deviations: bytes) -> bytes:
    """Return one object for equal deviations, which thousands of results in the cache contain."""
    return deviations


@lru_cache(maxsize=4096)
def _ratios(probs: bytes, deviations: bytes, budget: float, spread: float) -> Floats:
    """Return (M,) the share to renew in each state, for one outlook.

    Called at every tick, therefore cached by value; clients with equal outlooks share the result.
    """
    pi = np.frombuffer(probs)
    g = np.frombuffer(deviations).reshape(len(pi), -1)
    ratios = theory.dds_ratios_stationary(pi, g, budget, spread)
    ratios.flags.writeable = False
    return ratios
