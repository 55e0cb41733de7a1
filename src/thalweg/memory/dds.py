from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from thalweg import theory
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, MemoryContext
from thalweg.memory.base import RenewsShare


@dataclass(frozen=True)
class Dds(RenewsShare):
    r"""Distribution-guided data sampling: choose the share of the memory to renew by latent state.

    States that are important, have balanced labels, or are rarely visited get a larger share:

    .. math::
        \mathrm{score}_m = \frac{w_m - a_1 d_m + b_1}{1 + \frac{1-\alpha}{\alpha}\hat\pi_m},
        \qquad \alpha_m \propto \max(\mathrm{score}_m, 0),
        \quad \textstyle\sum_m \hat\pi_m \alpha_m = \alpha

    and :math:`\alpha_m \le 1`. In state m the policy overwrites :math:`\alpha_m` of the memory,
    chosen uniformly, by new samples. The expected renewal is therefore the budget :math:`\alpha`.
    With ``exact=True`` the underlying quadratic program is solved by its optimality conditions
    instead of the closed form.

    Symbols, SFedPO -> here
        :math:`\alpha` (per client)        -> budget
        :math:`a_1, b_1`                   -> slope, offset
        :math:`\hat\pi, w, d`              -> Outlook.probs, .importance, .heterogeneity
        T, G (only if exact)               -> ticks, grad_bound

    Differs from the paper: states of predicted probability 0, which the paper leaves undefined,
    follow `zero_prob_rule`. The factor is :math:`(1-\alpha)/\alpha` as in the paper's derivation,
    not :math:`\alpha/(1-\alpha)` as in its appendix.

    Two equally likely and equally important states; the second one is unbalanced. The scores are
    (0.5 + 0.25) / 1.5 = 0.5 and (0.5 - 0.25 + 0.25) / 1.5 = 1/3, the shares 0.6 and 0.4:

    >>> from thalweg.core.types import Outlook
    >>> from thalweg.memory import make_context
    >>> half = np.array([0.5, 0.5])
    >>> outlook = Outlook(probs=half, importance=half, heterogeneity=np.array([0.0, 1.0]))
    >>> context = make_context(capacity=10, held=10, num_new=10, state=0, outlook=outlook)
    >>> policy = Dds(budget=0.5, slope=0.25, offset=0.25)
    >>> policy.predict_renewal(None, context).round(6).tolist()
    [0.6, 0.4]
    >>> _, kept = policy.keep(None, context, np.random.default_rng(0))
    >>> (kept >= 10).sum().item()  # six of ten samples are new
    6
    """

    needs_class_labels: ClassVar[bool] = True  # describes states by their class histograms

    uses_forecast: ClassVar[bool] = True  # reads the outlook and the state of the recipe's forecast

    budget: float = 0.5
    """Expected share of the memory that one tick renews."""
    slope: float = 0.15
    """Factor by which unbalanced labels lower the share of a state."""
    offset: float = 0.25
    """Added to the score of every state; large values make the shares more equal."""
    exact: bool = False
    """Solve the quadratic program instead of using the closed form."""
    ticks: int = 5
    """Ticks per round in the bound that `exact` minimises."""
    grad_bound: float = 1.0
    """Largest gradient norm in that bound."""
    zero_prob_rule: Literal["extend", "zero", "budget"] = "extend"
    """Share for states of predicted probability 0: by the formula, none, or the budget."""
    stochastic_rounding: bool = False
    """Round the number of renewed samples at random, so that its mean is exact."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, budget="(0, 1]", ticks="[1, TICKS]", grad_bound="(0, inf)")
        require(math.isfinite(self.slope), f"slope must be a finite number, got {self.slope}.")
        require(math.isfinite(self.offset), f"offset must be a finite number, got {self.offset}.")

    def predict_renewal(self, state: None, context: MemoryContext) -> Floats:
        probs, importance, heterogeneity, *_ = context.outlook
        outlook = (
            np.asarray(part, dtype=np.float64).tobytes()
            for part in (probs, importance, heterogeneity)
        )
        return np.minimum(_ratios(self, *outlook), context.num_new / context.capacity)


@lru_cache(maxsize=4096)
def _ratios(policy: Dds, *outlook: bytes) -> Floats:
    """Return (M,) the share to renew in each state, for one outlook.

    Called at every tick, therefore cached by value; clients with equal outlooks share the result.
    """
    probs, importance, heterogeneity = (np.frombuffer(part) for part in outlook)
    if policy.exact:
        ratios = theory.dds_ratios_exact(
            probs, importance, heterogeneity, policy.budget, policy.ticks, policy.grad_bound
        )
    else:
        ratios = theory.dds_ratios(
            probs,
            importance,
            heterogeneity,
            policy.budget,
            policy.slope,
            policy.offset,
            zero_prob_rule=policy.zero_prob_rule,
        )
    ratios.flags.writeable = False
    return ratios
