"""Clients of this process whose updates the server sees as a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from thalweg.core.capabilities import Broadcast
from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints, Job, Rejection, Roster, SurveyResponses, Updates
from thalweg.engine.simulated import FederationWrapper, HasPending, SimulatedFederation
from thalweg.federation.base import SurveyStage
from thalweg.federation.extensions.secure_aggregation import simulate_masked_sum
from thalweg.recipes.base import Recipe

LATE_REASON = "its update came after the sum of its round was made."


class SecureSumFederation(FederationWrapper):
    """An embedded federation that hands on what a network with masks (`Recipe.secure_aggregation`) would, to the bit."""

    def __init__(self, inner: SimulatedFederation, recipe: Recipe) -> None:
        super().__init__(inner)
        self._recipe = recipe

    def roster(self, rnd: int) -> Roster:
        return self.inner.roster(rnd)

    def survey(
        self, clients: Ints, stage: SurveyStage, bank: Floats32, rnd: int
    ) -> SurveyResponses:
        return self.inner.survey(clients, stage, bank, rnd)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, broadcast: Broadcast | None = None
    ) -> Updates:
        updates = self.inner.train(jobs, bank, rnd, broadcast)
        return simulate_masked_sum(self._recipe, _reject_late(updates, rnd), len(jobs))

    def pending(self) -> Tree:
        return self.inner.pending() if isinstance(self.inner, HasPending) else {}

    def restore(self, pending: dict[str, Any]) -> None:
        if isinstance(self.inner, HasPending):
            self.inner.restore(pending)


def _reject_late(updates: Updates, rnd: int) -> Updates:
    """The sum of a round is made once; who comes later has no part in it."""
    is_late = updates.staleness(rnd) > 0
    if not is_late.any():
        return updates
    late = updates.clients[is_late].tolist()
    rejections = (*updates.rejections, *(Rejection(client, LATE_REASON) for client in late))
    extra_metrics = {
        **updates.extra_metrics,
        "rejected": updates.extra_metrics.get("rejected", 0) + len(late),
    }
    return replace(
        updates.only(~is_late), trained_in=None, rejections=rejections, extra_metrics=extra_metrics
    )
