"""Clients of this process whose updates the server sees as a sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from thalweg.core.talk import Told
from thalweg.core.trees import Tree
from thalweg.core.types import Answers, Floats32, Ints, Job, Refusal, Roster, Updates
from thalweg.engine.embedded import Around, Embedded, HasPending
from thalweg.recipes.base import Recipe
from thalweg.recipes.federation import AskingStage
from thalweg.recipes.sums import summed

LATE = "its update came after the sum of its round was made."


class SummingFederation(Around):
    """An embedded federation that hands on what a network with masks (`Recipe.secrecy`) would, to the bit."""

    def __init__(self, inner: Embedded, recipe: Recipe) -> None:
        super().__init__(inner)
        self._recipe = recipe

    def roster(self, rnd: int) -> Roster:
        return self.inner.roster(rnd)

    def survey(self, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int) -> Answers:
        return self.inner.survey(clients, stage, bank, rnd)

    def train(
        self, jobs: Sequence[Job], bank: Floats32, rnd: int, told: Told | None = None
    ) -> Updates:
        updates = self.inner.train(jobs, bank, rnd, told)
        return summed(self._recipe, _in_time(updates, rnd), len(jobs))

    def pending(self) -> Tree:
        return self.inner.pending() if isinstance(self.inner, HasPending) else {}

    def restore(self, pending: dict[str, Any]) -> None:
        if isinstance(self.inner, HasPending):
            self.inner.restore(pending)


def _in_time(updates: Updates, rnd: int) -> Updates:
    """The sum of a round is made once; who comes later has no part in it."""
    is_late = updates.staleness(rnd) > 0
    if not is_late.any():
        return updates
    late = updates.clients[is_late].tolist()
    refusals = (*updates.refusals, *(Refusal(client, LATE) for client in late))
    remarks = {**updates.remarks, "refused": updates.remarks.get("refused", 0) + len(late)}
    return replace(updates.only(~is_late), trained_in=None, refusals=refusals, remarks=remarks)
