"""A simple bank whose clients train two models each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.bank import BankAssignment, SplitContext, require_cohort
from thalweg.core.types import Floats, Floats32, Ints, Roster, SurveyResponses


class EvenOddState(NamedTuple):
    """The last share of even labels at each client, and the number of rounds."""

    shares: Floats  # (N,)
    rounds: int


@dataclass(frozen=True)
class EvenAndOdd:
    """Model 0 learns even labels, model 1 (a random one) odd labels; label 0 is not used."""

    def init(self, num_clients: int, num_classes: int) -> EvenOddState:
        return EvenOddState(np.full(num_clients, 0.5), 0)

    def assign(
        self, state: EvenOddState, roster: Roster, responses: SurveyResponses, num_models: int
    ) -> BankAssignment:
        cohort = require_cohort(roster)
        mix = np.array([[1.0], [0.0]]) if num_models == 1 else np.eye(2)
        return BankAssignment(
            state._replace(rounds=state.rounds + 1),
            mix,
            np.array([False, num_models == 1]),
            np.repeat(cohort, 2),
            np.tile([0, 1], len(cohort)),
            broadcast={"rounds": np.full((len(cohort), 1), state.rounds)},
        )

    def shares(self, state: EvenOddState, num_models: int) -> Floats:
        return np.full(num_models, 1 / num_models)

    def mixtures(self, state: EvenOddState, num_models: int) -> Floats:
        if num_models == 1:
            return np.ones((len(state.shares), 1))
        return np.stack([state.shares, 1 - state.shares], axis=1)

    # Client half

    def init_split(self, num_classes: int) -> Floats:
        return np.array([0.5])

    def split_samples(
        self, kept: Floats, split: SplitContext, received: Mapping[str, Floats32]
    ) -> tuple[Floats, Floats]:
        assert split.losses.shape == (len(split.models), len(split.labels))
        assert received["rounds"] <= split.rnd
        is_even = split.labels % 2 == 0
        counts = np.stack([is_even, ~is_even]) * (split.labels > 0)
        weights = counts * np.exp(-split.losses.astype(np.float64))
        share = counts[0].sum() / max(counts.sum(), 1)
        return np.array([share]), weights[: len(split.models)]

    def main_model(self, kept: Floats, models: Ints, received: Mapping[str, Floats32]) -> int:
        return int(kept[0] < 0.5) if len(models) > 1 else 0

    def upload(self, kept: Floats) -> Mapping[str, Floats32]:
        return {"share": kept.astype(np.float32)}

    def collect(
        self, state: EvenOddState, clients: Ints, uploads: Mapping[str, Floats32]
    ) -> EvenOddState:
        shares = state.shares.copy()
        shares[clients] = uploads["share"][:, 0]
        return state._replace(shares=shares)
