from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from thalweg.bank.base import BankAssignment, SplitContext, require_cohort, require_concepts
from thalweg.bank.soft import SINCE, find_random_models
from thalweg.core.claims import Delivery, check_vector
from thalweg.core.types import Floats, Floats32, Ints, Roster, SurveyResponses


class ConceptHistory(NamedTuple):
    """The true concept of each client and of each model."""

    concept_of: Ints  # (N,) -1: before the first round
    changed: Ints  # (N,) the round in which the client's concept last changed
    concepts: Ints  # (models,) the concept of each model; -1: before the first round


@dataclass(frozen=True)
class Oracle:
    r"""Oracle: one model per true concept, as an upper bound for methods that cluster clients.

    Client k trains the model of its true concept :math:`c_k`, on the samples that arrived in or
    after the round :math:`r_k` in which its concept last changed:

    .. math::  w_c \leftarrow \text{mean of the updates of the clients with } c_k = c

    A new concept gets a random model (the first one the initial model of the run). A concept that
    returns continues with its earlier model.

    Symbols: :math:`c_k, r_k` -> ConceptHistory.concept_of, ConceptHistory.changed.

    Differs from FedDAA's Oracle baseline, which the paper does not define in detail: hard
    assignment to concepts, and old samples of the same concept are kept for good. The bank needs
    ground truth (`core.types.OracleRoster`) and therefore works in simulations only.

    A client whose concept changed in round 40 trains on samples that arrived in that round or
    later:

    >>> arrived = np.array([0, 39, 40])
    >>> losses, labels = np.zeros((1, 3), np.float32), np.zeros(3, int)
    >>> split = SplitContext(np.array([1]), losses, labels, arrived, rnd=41)
    >>> _, weights = Oracle().split_samples(None, split, {SINCE: np.array([40.0])})
    >>> weights.tolist()
    [[0.0, 0.0, 1.0]]
    """

    is_oracle: ClassVar[bool] = True  # receives the true concepts
    has_fixed_models: ClassVar[bool] = True
    max_jobs: ClassVar[int] = 1

    def init(self, num_clients: int, num_classes: int) -> ConceptHistory:
        return ConceptHistory(
            concept_of=np.full(num_clients, -1, dtype=np.int64),
            changed=np.zeros(num_clients, dtype=np.int64),
            concepts=np.full(1, -1, dtype=np.int64),
        )

    def assign(
        self, state: ConceptHistory, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        truth = require_concepts(roster, "bank=oracle")
        has_changed = (truth != state.concept_of) & (state.concept_of >= 0)
        concepts = np.append(
            state.concepts[state.concepts >= 0],
            np.setdiff1d(truth, state.concepts),
        )
        state = ConceptHistory(truth, np.where(has_changed, roster.rnd, state.changed), concepts)
        mix = np.eye(len(concepts), num_models)
        cohort = require_cohort(roster)
        return BankAssignment(
            state=state,
            mix=mix,
            is_new=find_random_models(mix),
            clients=cohort,
            models=_models_of_clients(state)[cohort],
            broadcast={SINCE: state.changed[cohort, None].astype(np.float64)},
        )

    def mixtures(self, state: ConceptHistory, num_models: int) -> Floats:
        if (state.concept_of < 0).any():
            return np.full((len(state.concept_of), num_models), 1 / num_models)
        return np.eye(num_models)[_models_of_clients(state)]

    def shares(self, state: ConceptHistory, num_models: int) -> Floats:
        shares: Floats = self.mixtures(state, num_models).mean(axis=0)
        return shares

    def init_split(self, num_classes: int) -> None:
        return None

    def validate_delivery(self, delivery: Delivery) -> str | None:
        return check_vector(delivery.values, SINCE, 1)

    def split_samples(
        self, kept: None, split: SplitContext, received: Mapping[str, Floats32]
    ) -> tuple[None, Floats]:
        is_used = (split.since >= received[SINCE][0]).astype(np.float64)
        return None, np.tile(is_used, (len(split.models), 1))

    def main_model(self, kept: None, models: Ints, received: Mapping[str, Floats32]) -> int:
        return 0

    def upload(self, kept: None) -> Mapping[str, Floats32]:
        return {}

    def collect(
        self, state: ConceptHistory, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> ConceptHistory:
        return state


def _models_of_clients(state: ConceptHistory) -> Ints:
    """Return (N,) the model of each client's concept."""
    order = np.argsort(state.concepts)
    models: Ints = order[np.searchsorted(state.concepts, state.concept_of, sorter=order)]
    return models
