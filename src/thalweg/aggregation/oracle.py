from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.aggregation.bank import Arranged, Division, chosen
from thalweg.aggregation.soft import SINCE, drawn_in
from thalweg.core.errors import ConfigError
from thalweg.core.types import Answers, Floats, Floats32, Ints, Roster


class Truth(NamedTuple):
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

    def init(self, num_clients: int, num_classes: int) -> Truth:
        return Truth(
            concept_of=np.full(num_clients, -1, dtype=np.int64),
            changed=np.zeros(num_clients, dtype=np.int64),
            concepts=np.full(1, -1, dtype=np.int64),
        )

    def arrange(self, notes: Truth, roster: Roster, answers: Answers, num_models: int) -> Arranged:
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
        notes = Truth(
            truth.astype(np.int64), np.where(is_other, roster.rnd, notes.changed), concepts
        )
        mix = np.eye(len(concepts), num_models)
        cohort = chosen(roster)
        return Arranged(
            notes=notes,
            mix=mix,
            is_new=drawn_in(mix),
            clients=cohort,
            models=_places(notes)[cohort],
            told={SINCE: notes.changed[cohort, None].astype(np.float64)},
        )

    def mixtures(self, notes: Truth, num_models: int) -> Floats:
        if (notes.concept_of < 0).any():
            return np.full((len(notes.concept_of), num_models), 1 / num_models)
        return np.eye(num_models)[_places(notes)]

    def shares(self, notes: Truth, num_models: int) -> Floats:
        shares: Floats = self.mixtures(notes, num_models).mean(axis=0)
        return shares

    def begin_division(self, num_classes: int) -> None:
        return None

    def divide(
        self, kept: None, division: Division, heard: Mapping[str, Floats32]
    ) -> tuple[None, Floats]:
        is_used = (division.since >= heard[SINCE][0]).astype(np.float64)
        return None, np.tile(is_used, (len(division.models), 1))

    def main(self, kept: None, models: Ints) -> int:
        return 0

    def say(self, kept: None) -> Mapping[str, Floats32]:
        return {}

    def hear(self, notes: Truth, clients: Ints, said: Mapping[str, Floats32]) -> Truth:
        return notes


def _places(notes: Truth) -> Ints:
    """(N,) the model of each client's concept."""
    order = np.argsort(notes.concepts)
    places: Ints = order[np.searchsorted(notes.concepts, notes.concept_of, sorter=order)]
    return places
