"""A bank whose clients train two models at once, simple enough to follow by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.aggregation import Arranged, Division, chosen
from thalweg.core.types import Answers, Floats, Floats32, Ints, Roster


class Heard(NamedTuple):
    """What the server knows: the last share of even labels that each client had, and rounds."""

    shares: Floats  # (N,)
    rounds: int


@dataclass(frozen=True)
class EvenAndOdd:
    """Model 0 learns from even labels, model 1, which is drawn, from odd ones; label 0 is nobody's."""

    def init(self, num_clients: int, num_classes: int) -> Heard:
        return Heard(np.full(num_clients, 0.5), 0)

    def arrange(self, notes: Heard, roster: Roster, answers: Answers, num_models: int) -> Arranged:
        cohort = chosen(roster)
        mix = np.array([[1.0], [0.0]]) if num_models == 1 else np.eye(2)
        return Arranged(
            notes._replace(rounds=notes.rounds + 1),
            mix,
            np.array([False, num_models == 1]),
            np.repeat(cohort, 2),
            np.tile([0, 1], len(cohort)),
            told={"rounds": np.full((len(cohort), 1), notes.rounds)},
        )

    def shares(self, notes: Heard, num_models: int) -> Floats:
        return np.full(num_models, 1 / num_models)

    def mixtures(self, notes: Heard, num_models: int) -> Floats:
        if num_models == 1:
            return np.ones((len(notes.shares), 1))
        return np.stack([notes.shares, 1 - notes.shares], axis=1)

    # --- at the client ---

    def begin_division(self, num_classes: int) -> Floats:
        return np.array([0.5])

    def divide(
        self, kept: Floats, division: Division, heard: Mapping[str, Floats32]
    ) -> tuple[Floats, Floats]:
        assert division.losses.shape == (len(division.models), len(division.labels))
        assert heard["rounds"] <= division.rnd
        is_even = division.labels % 2 == 0
        counts = np.stack([is_even, ~is_even]) * (division.labels > 0)
        weights = counts * np.exp(-division.losses.astype(np.float64))
        share = counts[0].sum() / max(counts.sum(), 1)
        return np.array([share]), weights[: len(division.models)]

    def main(self, kept: Floats, models: Ints) -> int:
        return int(kept[0] < 0.5) if len(models) > 1 else 0

    def say(self, kept: Floats) -> Mapping[str, Floats32]:
        return {"share": kept.astype(np.float32)}

    def hear(self, notes: Heard, clients: Ints, said: Mapping[str, Floats32]) -> Heard:
        shares = notes.shares.copy()
        shares[clients] = said["share"][:, 0]
        return notes._replace(shares=shares)
