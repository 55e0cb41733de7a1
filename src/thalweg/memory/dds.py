from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from thalweg import theory
from thalweg.core.config import check_literals, check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints, MemoryContext
from thalweg.memory.base import renew, round_count


@dataclass(frozen=True)
class Dds:
    r"""Distribution-guided data sampling: renew more in states that matter, are balanced, or are rare.

    .. math::  \mathrm{score}_m = \frac{w_m - a_1 d_m + b_1}{1 + \frac{1-\alpha}{\alpha}\hat\pi_m},
       \qquad  \alpha_m \propto \max(\mathrm{score}_m, 0), \quad \textstyle\sum_m \hat\pi_m \alpha_m = \alpha

    The average renewal over a client's life is the budget; how it is spent over the states follows
    what the client expects (`Outlook`). With ``exact=True`` the underlying quadratic program is solved by
    its optimality conditions instead of the closed form.

    Symbols, SFedPO -> here
        :math:`\alpha` (per client)     -> budget
        :math:`a_1, b_1`                -> slope, offset
        :math:`\hat\pi, w, d`           -> Outlook.probs, .importance, .heterogeneity
        T, G (exact only)               -> ticks, grad_bound

    Differs from the paper: it says nothing of states predicted to be impossible; see
    `zero_prob_rule`. The factor is (1-α)/α as in its derivation, not α/(1-α) as in its appendix.
    """

    budget: float = 0.5
    slope: float = 0.15
    offset: float = 0.25
    exact: bool = False
    ticks: int = 5
    """Ticks per round in the bound that `exact` minimises."""
    grad_bound: float = 1.0
    zero_prob_rule: Literal["extend", "zero", "budget"] = "extend"
    """What a state predicted to be impossible gets if the client meets it all the same."""
    stochastic_rounding: bool = False

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(self, budget="(0, 1]", ticks="[1, inf)", grad_bound="(0, inf)")
        require(math.isfinite(self.slope), f"slope must be a finite number, got {self.slope}.")
        require(math.isfinite(self.offset), f"offset must be a finite number, got {self.offset}.")

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        amount = float(self.predict_renewal(state, intake)[intake.state]) * intake.capacity
        return None, renew(
            intake, round_count(amount, rng if self.stochastic_rounding else None), rng
        )

    def predict_renewal(self, state: None, intake: MemoryContext) -> Floats:
        outlook = (np.asarray(part, dtype=np.float64).tobytes() for part in intake.outlook)
        return np.minimum(_ratios(self, *outlook), intake.num_new / intake.capacity)


@lru_cache(maxsize=4096)
def _ratios(policy: Dds, *outlook: bytes) -> Floats:
    """The ratios of one outlook; asked for at every tick, so remembered (by value, not by client)."""
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
