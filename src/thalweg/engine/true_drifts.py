"""The truth about drift in a run: who drifts when. For the metrics; nobody who learns is told."""

from __future__ import annotations

from typing import Any

import numpy as np

from thalweg.core.types import Ints
from thalweg.engine.client_pool import ClientPool
from thalweg.evaluation.alarms import HasChanges
from thalweg.scenarios import Scenario


class TrueDrifts:
    """Every drift of a run, as its world has it; who drifted, and how, is told if `by_name`."""

    def __init__(self, client_pool: ClientPool, by_name: bool = False) -> None:
        self._client_pool, self._by_name = client_pool, by_name
        events = (
            client_pool.world.drift_events() if isinstance(client_pool.world, HasChanges) else []
        )
        self._rounds = np.array([rnd for rnd, _, _ in events], dtype=np.int64)
        self._clients = np.array([client for _, client, _ in events], dtype=np.int64)
        self._kinds = np.array([kind for _, _, kind in events], dtype=str)

    @property
    def is_known(self) -> bool:
        """Does the world say when its clients drift, on a clock that can be read here?

        That of clients which stand still while they are away is their own, and if they live elsewhere nobody here
        knows how late it is there.
        """
        world = self._client_pool.world
        return isinstance(world, HasChanges) and (
            world.collects_when_absent or bool(self._client_pool.states)
        )

    def clock(self, rounds_done: int) -> Ints:
        """(N,) the round that every client's stream was in last."""
        if not len(self._rounds):
            return np.empty(0, dtype=np.int64)
        when = self._client_pool.clock(max(rounds_done - 1, 0))
        return np.broadcast_to(when, self._client_pool.world.num_clients).astype(np.int64)

    def make_row(self, before: Ints, now: Ints) -> dict[str, Any]:
        """How many clients have drifted between two moments, and by name which; nothing if nobody has."""
        if not len(self._rounds):
            return {}
        who, when = self._clients, self._rounds
        has_come = (before[who] < when) & (when <= now[who])
        if not has_come.any():
            return {}
        row: dict[str, Any] = {"drifted": len(np.unique(who[has_come]))}
        if self._by_name:
            kinds = np.unique(self._kinds[has_come]).tolist()
            of_kind = {kind: who[has_come & (self._kinds == kind)] for kind in kinds}
            row["drifts"] = {kind: np.unique(whose).tolist() for kind, whose in of_kind.items()}
        return row

    def needs_tasks(self, scenario: Scenario, rounds_done: int) -> bool:
        """Is it time to look at all tasks: in the end, and before somebody drifts?

        Clients with clocks of their own may drift at any time.
        """
        if not scenario.tasks:
            return False
        if rounds_done == scenario.rounds or not self._client_pool.world.collects_when_absent:
            return True
        next_look = (rounds_done // scenario.evaluate_every + 1) * scenario.evaluate_every
        return bool(((self._rounds >= rounds_done) & (self._rounds < next_look)).any())
