from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from thalweg.aggregation.adaptive import Adaptive
from thalweg.aggregation.base import HasEvalModel, ScalesLr, ServerRule
from thalweg.aggregation.buffered import Buffered
from thalweg.aggregation.fedacg import FedAcg
from thalweg.aggregation.fedavgm import FedAvgM
from thalweg.aggregation.fedexp import FedExp
from thalweg.aggregation.fedopt import FedAdagrad, FedAdam, FedYogi
from thalweg.aggregation.flash import Flash
from thalweg.aggregation.step import Step
from thalweg.core.config import check_ranges, choice, convert_parts
from thalweg.core.types import Floats, Floats32

# The rules whose models can be averaged: all others.
AVERAGED_RULES = {
    "step": Step,
    "adaptive": Adaptive,
    "fedacg": FedAcg,
    "fedexp": FedExp,
    "flash": Flash,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "fedadagrad": FedAdagrad,
    "buffered": Buffered,
}


class AveragedModels(NamedTuple):
    """The average of the models of some rounds."""

    rule: Any  # the state of the averaged rule
    mean: Floats32  # (P,) empty before the first round
    total: float = 0.0  # sum of the weights of the rounds
    rounds: int = 0
    round_weight: float = 1.0  # of the round that follows


@dataclass(frozen=True)
class Averaged:
    r"""Trains the last model and evaluates an average of the models of all rounds.

    .. math::
        \bar\theta = \sum_t q^{(t)} \theta^{(t)}, \qquad q^{(t)} \propto t^a \, W^{(t)}, \qquad
        W^{(t)} = \sum_m \sum_j \lambda_m^{(t,j)}

    Clients receive the last model; the average is evaluated and deployed. With a = 0 this is the
    output of Algorithm 1 of Marfoq et al. (2023). With a > 0 late rounds count more (Shamir and
    Zhang 2013), so that the first models, which are far from good, have little influence.

    Symbols -> here
        :math:`\theta^{(t)}`         model before the step of round t
        t                            -> AveragedModels.rounds + 1; restarts with each session
        :math:`\lambda`, W           sample weights, and their sum if ``weights=by-weight``; else 1
        a                            -> power

    Two rounds with models 0 and 3. The second one has the double weight, so that the average is
    (1 * 0 + 2 * 3) / 3 = 2:

    >>> rule, model = Averaged(), np.zeros(1, dtype=np.float32)
    >>> update, alone = np.array([[3]], dtype=np.float32), np.ones(1)
    >>> state, model = rule.step(rule.init(1), model, update, alone)
    >>> state, model = rule.step(rule.set_round_weight(state, 2.0), model, update, alone)
    >>> model.tolist(), rule.eval_model(state, model).tolist()
    ([6.0], [2.0])
    """

    rule: ServerRule = choice(AVERAGED_RULES, default=Step())
    """Computes the last model."""
    power: float = 0.0
    """How much more late rounds count; 0: as in Algorithm 1."""

    def __post_init__(self) -> None:
        convert_parts(self)
        check_ranges(self, power="[0, inf)")

    @property
    def needs_individual_updates(self) -> bool:
        return bool(getattr(self.rule, "needs_individual_updates", True))

    @property
    def counts_updates(self) -> bool:
        return bool(getattr(self.rule, "counts_updates", False))

    def init(self, num_params: int) -> AveragedModels:
        return AveragedModels(self.rule.init(num_params), np.empty(0, dtype=np.float32))

    def set_round_weight(self, state: AveragedModels, total: float) -> AveragedModels:
        return state._replace(round_weight=total)

    def step(
        self, state: AveragedModels, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[AveragedModels, Floats32]:
        rounds = state.rounds + 1
        weight = state.round_weight * rounds**self.power
        total, current = state.total + weight, self._get_eval_model(state.rule, model)
        mean = state.mean if len(state.mean) else current
        if total > 0:
            mean = mean + np.float32(weight / total) * (current - mean)
        inner, moved = self.rule.step(state.rule, model, deltas, weights)
        return AveragedModels(inner, mean, total, rounds), moved

    def eval_model(self, state: AveragedModels, model: Floats32) -> Floats32:
        """Return the average; before the first step, the model."""
        return state.mean if len(state.mean) else self._get_eval_model(state.rule, model)

    def lr_scale(self, state: AveragedModels) -> float:
        return self.rule.lr_scale(state.rule) if isinstance(self.rule, ScalesLr) else 1.0

    def _get_eval_model(self, rule_state: Any, model: Floats32) -> Floats32:
        """Return the model of a round that is averaged: that which the rule would evaluate."""
        rule = self.rule
        return rule.eval_model(rule_state, model) if isinstance(rule, HasEvalModel) else model
