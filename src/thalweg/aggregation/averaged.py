from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.aggregation.adaptive import Adaptive
from thalweg.aggregation.base import ScalesLr, ServerRule, has_eval_model
from thalweg.aggregation.buffered import Buffered
from thalweg.aggregation.fedacg import FedAcg
from thalweg.aggregation.fedavgm import FedAvgM
from thalweg.aggregation.fedexp import FedExp
from thalweg.aggregation.fedopt import FedAdagrad, FedAdam, FedYogi
from thalweg.aggregation.flash import Flash
from thalweg.aggregation.step import Step
from thalweg.core.config import check_literals, check_ranges, choice, convert_parts
from thalweg.core.decisions import make_decision
from thalweg.core.errors import require
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.vectors import freeze

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


NO_CLIENTS: Ints = freeze(np.empty((0, 3), dtype=np.int64))


class AveragedModels(NamedTuple):
    """The average of the models of the rounds since the last restart."""

    rule: Any  # the state of the averaged rule
    mean: Floats32  # (P,) empty before the first round
    total: float = 0.0  # sum of the weights of the rounds
    rounds: int = 0
    round_weight: float = 1.0  # of the round that follows
    recent: Ints = NO_CLIENTS
    """(n, 3) the clients of the last rounds: their ids, the round in which each took part, and the
    round of its last alarm, or 0. Rounds are counted as in `rounds`."""
    pending: float = 0.0
    """Weight of the last model if the mean does not contain it yet (``models=after``)."""


@dataclass(frozen=True)
class Averaged:
    r"""Trains the last model and evaluates an average of the models of many rounds.

    .. math::
        \bar\theta = \sum_t q^{(t)} \theta^{(t)}, \qquad q^{(t)} \propto t^a \, W^{(t)}, \qquad
        W^{(t)} = \sum_m \sum_j \lambda_m^{(t,j)}

    Clients receive the last model; the average is evaluated and deployed. With a = 0 this is the
    output of Algorithm 1 of Marfoq et al. (2023). With a > 0 late rounds count more (Shamir and
    Zhang 2013), so that the first models, which are far from good, have little influence.

    The average restarts with each session. If the recipe has an alarm, it also restarts when the
    alarms of a share `restart_share` of the clients that trained the model in the last
    `restart_window` rounds were raised in these rounds: then the last model is evaluated, and the
    average has the models from then on. The state of `rule` stays.

    Symbols -> here
        :math:`\theta^{(t)}`         model before the step of round t, or after it: `models`
        t                            -> AveragedModels.rounds + 1; 1 in the round after a restart
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

    The alarms of one of two clients, and then of two of four are raised. With a share of 0.5 the
    second round restarts the average, which is the last model again:

    >>> rule = Averaged(restart_share=0.5)
    >>> clients, is_alarmed = np.array([0, 1, 2]), np.array([False, False, True])
    >>> state, decision = rule.note_alarms(state, clients, is_alarmed)
    >>> decision is None, rule.eval_model(state, model).tolist()
    (True, [2.0])
    >>> state, decision = rule.note_alarms(state, np.array([3]), np.array([True]))
    >>> decision["alarmed"], rule.eval_model(state, model).tolist()
    (2, [6.0])
    """

    rule: ServerRule = choice(AVERAGED_RULES, default=Step())
    """Computes the last model."""
    power: float = 0.0
    """How much more late rounds count; 0: as in Algorithm 1."""
    models: Literal["before", "after"] = "before"
    """Average the models before the steps of the rounds, as in Algorithm 1, or those after them."""
    restart_share: float | None = 0.2
    """Share of the clients of a model whose alarms restart its average; none: alarms do not."""
    restart_window: int = 3
    """Number of rounds whose clients and alarms are counted."""

    def __post_init__(self) -> None:
        convert_parts(self)
        check_literals(self)
        check_ranges(
            self, power="[0, 50]", restart_share="(0, 1] or none", restart_window="[1, 1000]"
        )
        window = type(self).restart_window
        require(
            self.restart_share is not None or self.restart_window == window,
            f"server.restart_window={self.restart_window} has no effect without "
            f"server.restart_share: expected {window}, the default. Leave it out, or set a share, "
            f"such as server.restart_share={type(self).restart_share}.",
        )

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
        mean, total, pending = state.mean, state.total, 0.0
        if self.models == "before":
            mean, total = self._add_model(state, model, weight)
        else:  # statistics of normalisation change after the step, so that the next one adds them
            pending = weight
            if state.pending > 0:
                mean, total = self._add_model(state, model, state.pending)
        inner, moved = self.rule.step(state.rule, model, deltas, weights)
        after = AveragedModels(inner, mean, total, rounds, recent=state.recent, pending=pending)
        return after, moved

    def note_alarms(
        self, state: AveragedModels, clients: Ints, is_alarmed: npt.NDArray[np.bool_]
    ) -> tuple[AveragedModels, Mapping[str, Any] | None]:
        """Return the state after alarms and, if the average has restarted, the decision."""
        if self.restart_share is None:
            return state, None
        recent = _count_alarms(state.recent, state.rounds, clients, is_alarmed)
        recent = recent[recent[:, 1] > state.rounds - self.restart_window]
        num_alarmed = int((recent[:, 2] > max(state.rounds - self.restart_window, 0)).sum())
        if num_alarmed < max(self.restart_share * len(recent), 1):
            return state._replace(recent=recent), None
        decision = make_decision(
            "restart-average",
            f"{num_alarmed} of the {len(recent)} clients of the last rounds raised an alarm",
            alarmed=num_alarmed,
            clients=len(recent),
            rounds=state.rounds,
        )
        return AveragedModels(state.rule, np.empty(0, dtype=np.float32)), decision

    def eval_model(self, state: AveragedModels, model: Floats32) -> Floats32:
        """Return the average; before the first step, the model."""
        if state.pending > 0:
            return self._add_model(state, model, state.pending)[0]
        return state.mean if len(state.mean) else self._get_eval_model(state.rule, model)

    def lr_scale(self, state: AveragedModels) -> float:
        return self.rule.lr_scale(state.rule) if isinstance(self.rule, ScalesLr) else 1.0

    def _add_model(
        self, state: AveragedModels, model: Floats32, weight: float
    ) -> tuple[Floats32, float]:
        """Return the mean (P,) with one more model, and the sum of the weights."""
        current, total = self._get_eval_model(state.rule, model), state.total + weight
        mean = state.mean if len(state.mean) else current
        if total > 0:
            mean = mean + np.float32(weight / total) * (current - mean)
        return mean, total

    def _get_eval_model(self, rule_state: Any, model: Floats32) -> Floats32:
        """Return the model of a round that is averaged: that which the rule would evaluate."""
        rule = self.rule
        return rule.eval_model(rule_state, model) if has_eval_model(rule) else model


def _count_alarms(
    recent: Ints, rounds: int, clients: Ints, is_alarmed: npt.NDArray[np.bool_]
) -> Ints:
    """Return the table of clients (n, 3) after one round, ascending by client.

    >>> recent = np.array([[4, 1, 1], [7, 1, 0]])
    >>> _count_alarms(recent, 2, np.array([4, 5]), np.array([False, True])).tolist()
    [[4, 2, 1], [5, 2, 2], [7, 1, 0]]
    """
    table = {client: (then, last_alarm) for client, then, last_alarm in recent.tolist()}
    for client, alarmed in zip(clients.tolist(), is_alarmed.tolist(), strict=True):
        last_alarm = rounds if alarmed else table.get(client, (0, 0))[1]
        table[client] = rounds, last_alarm
    rows = [(client, *table[client]) for client in sorted(table)]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)
