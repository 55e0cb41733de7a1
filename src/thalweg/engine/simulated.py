"""Federations in this process: their interface, wrappers, and simulated secure aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from thalweg.core.capabilities import Broadcast
from thalweg.core.trees import Tree
from thalweg.core.types import Floats32, Ints, Job, Rejection, Roster, SurveyResponses, Updates
from thalweg.data import Part
from thalweg.data.base import Targets
from thalweg.federation import Federation, SurveyStage, build_updates
from thalweg.federation.extensions.secure_aggregation import drop_all_updates, simulate_masked_sum
from thalweg.recipes.base import Recipe

if TYPE_CHECKING:
    from thalweg.engine.client_pool import ClientPool

LATE_REASON = "its update came after the sum of its round was computed."


class SimulatedFederation(Federation, Protocol):
    """A federation that has the client states (or their number) and can evaluate models."""

    client_pool: ClientPool

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None
    ) -> tuple[Targets, Floats32]:
        """Return predictions and losses of models (M, P) on the same rows; None: all."""
        ...

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None) -> Floats32:
        """Return log probabilities (M, n, C) of models on the same rows; None: all."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class HasPending(Protocol):
    """A federation with state between rounds other than that of its clients."""

    def pending(self) -> Tree: ...

    def restore(self, pending: dict[str, Any]) -> None: ...


class FederationWrapper:
    """Base class of federations that change what clients send, and delegate the rest."""

    def __init__(self, inner: SimulatedFederation) -> None:
        self.inner, self.client_pool = inner, inner.client_pool

    def true_concepts(self, rnd: int) -> Ints:
        return self.client_pool.true_concepts(rnd)

    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None
    ) -> tuple[Targets, Floats32]:
        return self.inner.predict_many(models, part, rows)

    def scores_many(self, models: Floats32, part: Part, rows: Ints | None) -> Floats32:
        return self.inner.scores_many(models, part, rows)

    def close(self) -> None:
        self.inner.close()


class SecureSumFederation(FederationWrapper):
    """Simulates secure aggregation: the server receives the sum of the updates only.

    The result has the same bits as a network run with masks (`Recipe.secure_aggregation`). A cohort
    that is too small for a sum does not train, as on a network.
    """

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
        secure_aggregation = self._recipe.secure_aggregation
        assert secure_aggregation is not None
        if len(jobs) < secure_aggregation.required_clients(len(jobs)):
            return drop_all_updates(build_updates([], bank.shape[1]))
        updates = self.inner.train(jobs, bank, rnd, broadcast)
        return simulate_masked_sum(self._recipe, _reject_late(updates, rnd), len(jobs))

    def pending(self) -> Tree:
        return self.inner.pending() if isinstance(self.inner, HasPending) else {}

    def restore(self, pending: dict[str, Any]) -> None:
        if isinstance(self.inner, HasPending):
            self.inner.restore(pending)


def _reject_late(updates: Updates, rnd: int) -> Updates:
    """Reject updates of earlier rounds: the sum of a round is computed once."""
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
