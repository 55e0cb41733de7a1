from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.bank.base import BankAssignment, SplitContext, require_cohort
from thalweg.bank.soft import SINCE, find_random_models
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints, Roster, SurveyResponses


class ConceptHistory(NamedTuple):
    """Who has had which concept since when."""

    concept_of: Ints  # (N,) -1: not known yet
    changed: Ints  # (N,) the round in which it last changed
    concepts: Ints  # (models,) of which concept each model is; -1: nobody's yet


@dataclass(frozen=True)
class Oracle:
    """One model for every concept, and everybody knows the truth: what clustering could reach at best.

    A client trains the model of its true concept on the samples that it holds of that concept: those which came
    in the round in which its concept last changed, or later. A concept that comes up for the first time gets a
    model that is drawn; one that comes back, however late, has the model it had.

    The truth is the world's (`Roster.concepts`), so that only simulations can have this bank.
    """

    def init(self, num_clients: int, num_classes: int) -> ConceptHistory:
        return ConceptHistory(
            concept_of=np.full(num_clients, -1, dtype=np.int64),
            changed=np.zeros(num_clients, dtype=np.int64),
            concepts=np.full(1, -1, dtype=np.int64),
        )

    def assign(
        self, notes: ConceptHistory, roster: Roster, answers: SurveyResponses, num_models: int
    ) -> BankAssignment:
        truth = roster.concepts
        if truth is None:
            raise ConfigError(
                "bank=oracle needs to know every client's true concept, which only a simulation does; "
                "take a bank that finds out by itself, such as feddaa or feddrift."
            )
        is_other = (truth != notes.concept_of) & (notes.concept_of >= 0)
        concepts = np.append(
            notes.concepts[notes.concepts >= 0],
            np.setdiff1d(truth, notes.concepts),
        )
        notes = ConceptHistory(
            truth.astype(np.int64), np.where(is_other, roster.rnd, notes.changed), concepts
        )
        mix = np.eye(len(concepts), num_models)
        cohort = require_cohort(roster)
        return BankAssignment(
            notes=notes,
            mix=mix,
            is_new=find_random_models(mix),
            clients=cohort,
            models=_models_of_clients(notes)[cohort],
            broadcast={SINCE: notes.changed[cohort, None].astype(np.float64)},
        )

    def mixtures(self, notes: ConceptHistory, num_models: int) -> Floats:
        if (notes.concept_of < 0).any():
            return np.full((len(notes.concept_of), num_models), 1 / num_models)
        return np.eye(num_models)[_models_of_clients(notes)]

    def shares(self, notes: ConceptHistory, num_models: int) -> Floats:
        shares: Floats = self.mixtures(notes, num_models).mean(axis=0)
        return shares

    def init_split(self, num_classes: int) -> None:
        return None

    def split_samples(
        self, kept: None, split: SplitContext, received: Mapping[str, Floats32]
    ) -> tuple[None, Floats]:
        is_used = (split.since >= received[SINCE][0]).astype(np.float64)
        return None, np.tile(is_used, (len(split.models), 1))

    def main_model(self, kept: None, models: Ints) -> int:
        return 0

    def upload(self, kept: None) -> Mapping[str, Floats32]:
        return {}

    def collect(
        self, notes: ConceptHistory, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> ConceptHistory:
        return notes


def _models_of_clients(notes: ConceptHistory) -> Ints:
    """(N,) the model of each client's concept."""
    order = np.argsort(notes.concepts)
    places: Ints = order[np.searchsorted(notes.concepts, notes.concept_of, sorter=order)]
    return places
