"""Banks of the baselines without a shared model, with personal models, and without clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thalweg.bank.base import BankAssignment, OneModel, require_cohort
from thalweg.core.types import Floats, Roster, SurveyResponses


@dataclass(frozen=True)
class OnePerClient:
    r"""One model for each client, which only this client trains and uses; no communication.

    .. math::  w_k \leftarrow w_k + \Delta_k

    All models start from the initial model of the run. In a round, each present client takes its
    local steps from its own model. Metrics count no bytes, and faults of the scenario have no
    effect, because no message is sent. Parts of a recipe that concern the server or messages are
    rejected (`recipes.compatibility`).

    Symbols: :math:`w_k` model of client k; :math:`\Delta_k` the change by its local steps.

    A run holds N x P numbers, and an evaluation predicts the test set with N models.

    >>> bank = OnePerClient()
    >>> roster = Roster(0, np.arange(3), np.ones(3), np.zeros(3, int), cohort=np.array([0, 2]))
    >>> assignment = bank.assign(bank.init(3, 10), roster, {}, num_models=1)
    >>> assignment.mix.tolist()  # three copies of the initial model
    [[1.0], [1.0], [1.0]]
    >>> assignment.models.tolist()  # clients 0 and 2 train their own models
    [0, 2]
    """

    is_federated: ClassVar[bool] = False
    has_personal_models: ClassVar[bool] = True
    has_fixed_models: ClassVar[bool] = True
    max_jobs: ClassVar[int] = 1

    def init(self, num_clients: int, num_classes: int) -> int:
        return num_clients

    def assign(
        self, state: int, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        mix = np.eye(state) if num_models == state else np.ones((state, 1))
        cohort = require_cohort(roster)
        return BankAssignment(state, mix, np.zeros(state, dtype=bool), cohort, cohort)

    def mixtures(self, state: int, num_models: int) -> Floats:
        return np.eye(state) if num_models == state else np.ones((state, 1))

    def shares(self, state: int, num_models: int) -> Floats:
        return np.full(num_models, 1 / num_models)


@dataclass(frozen=True)
class FineTuned(OneModel):
    r"""One global model; each client predicts with the result of its own local steps from it.

    .. math::  w_k \leftarrow w + \Delta_k

    The global model is trained as with `OneModel`. In addition, a client keeps the result of its
    last local steps and predicts with it: its test samples, and arriving samples before it trains
    on them. A client that has not trained yet predicts with the global model. A client that is
    absent or not chosen keeps its older result.

    Symbols: :math:`w` global model that client k received last; :math:`\Delta_k` the change by its
    local steps; :math:`w_k` -> ClientState.trained.

    >>> bank = FineTuned()
    >>> bank.is_single_model, bank.shares(bank.init(5, 2), num_models=1).tolist()
    (True, [1.0])
    """

    has_personal_models: ClassVar[bool] = True
    keeps_trained_models: ClassVar[bool] = True


@dataclass(frozen=True)
class Centralised(OneModel):
    r"""One model that is trained in one place, on the samples of all clients.

    One learner receives the arrivals of all present clients (`streams.MergedWorld`). Its memory
    has the capacity of all clients together. It takes as many steps as all present clients would
    take: with `local.steps`, this number for each present client; with `local.passes`, passes
    over the share of the memory that belongs to present clients. Metrics count the samples that
    clients send, with 4 bytes per number. Faults of the scenario have no effect, because no
    update is sent.

    The model is evaluated as a global model: at each client, on data like the client's own.

    >>> bank = Centralised()
    >>> bank.is_single_model, bank.merges_clients
    (True, True)
    """

    is_federated: ClassVar[bool] = False
    merges_clients: ClassVar[bool] = True
