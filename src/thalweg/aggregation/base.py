"""Interfaces of weights and server rules."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Floats32, Ints, Outlook, Roster, Updates


class MemorySummary(NamedTuple):
    """Statistics of one client's memory, from which `Reports.report` computes its numbers."""

    outlook: Outlook
    renewal: Floats  # (M,) fraction of the memory that one tick in each state replaces
    ticks: int  # ticks per round
    embeddings: Floats | None = None  # (M, E) an embedding of each state; None: not known
    total_weight: float = 0.0  # sum of the sample weights; without such a policy their number
    mass: float = 0.0  # the part of it that counts for one model, if there are several
    label_mix: Floats | None = None  # (C,) shares of the classes, for rules with `reports_labels`
    num_arrived: int = 0  # samples that have arrived at the client so far


class Weights(Protocol):
    """Computes the weight of each update in the weighted mean.

    Implement `weigh`; no base class is needed. A rule that needs numbers from the clients also
    implements `Reports`.
    """

    def weigh(self, updates: Updates, roster: Roster) -> Floats:
        """Return weights (K,), one per update, not negative.

        They sum to one, or to less if the server's step should be shorter.
        """
        ...


@runtime_checkable
class Reports(Protocol):
    """A weights rule for which each client sends a few numbers with its update."""

    def report(self, summary: MemorySummary) -> Mapping[str, float]:
        """Return finite numbers by name; called at the client.

        The server finds the values of this round in `Updates.reports` (K,) and the last values of
        each client in `Roster.known` (N,).
        """
        ...


class ServerRule(Protocol):
    """Computes the next model from the current model and the weighted updates.

    Implement `init` and `step`; no base class is needed. The rule is a frozen value: its state is
    passed in and returned, and must survive a checkpoint. Each model of a bank has its own state.
    """

    def init(self, num_params: int) -> Any:
        """Return the state of the rule before the first step."""
        ...

    def step(
        self, state: Any, model: Floats32, deltas: Floats32, weights: Floats
    ) -> tuple[Any, Floats32]:
        """Return the next state and the next model (P,), without changing the arguments.

        `model` is (P,), `deltas` is (K, P), `weights` is (K,), and K is at least one.
        """
        ...


@runtime_checkable
class ScalesLr(Protocol):
    """A server rule that also scales the learning rate of the clients."""

    def lr_scale(self, state: Any) -> float:
        """Return the factor of the clients' learning rate in the next round."""
        ...


@runtime_checkable
class WeighsRounds(Protocol):
    """A server rule for which the total sample weight of a round matters."""

    def set_round_weight(self, state: Any, total: float) -> Any:
        """Return the state before the step of a round in which the clients report this total.

        Called with ``weights=by-weight`` only.
        """
        ...


@runtime_checkable
class RestartsOnAlarms(Protocol):
    """A server rule whose state is of no use after the data of many clients have changed."""

    def note_alarms(
        self, state: Any, clients: Ints, is_alarmed: npt.NDArray[np.bool_]
    ) -> tuple[Any, Mapping[str, Any] | None]:
        """Return the next state and, if the rule has restarted, an entry of the `decisions`.

        Called after the steps of a round, for each model, if the recipe has an alarm. `clients`
        (K,) trained the model, ascending; the alarms of some were raised in the round.
        """
        ...


@runtime_checkable
class HasEvalModel(Protocol):
    """A server rule that sends clients another model than the one it evaluates and deploys."""

    def eval_model(self, state: Any, model: Floats32) -> Floats32:
        """Return the model (P,) to evaluate and to deploy; `model` (P,) is sent to clients."""
        ...


def has_eval_model(rule: Any) -> TypeGuard[HasEvalModel]:
    """Return whether a server rule is `HasEvalModel`; its class is examined once."""
    return _has_eval_model(rule.__class__)


@cache
def _has_eval_model(kind: Hashable) -> bool:
    return isinstance(kind, type) and issubclass(kind, HasEvalModel)
