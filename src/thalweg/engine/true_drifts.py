"""The true drifts of a run, for metrics only: policies have no access to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from thalweg.core.types import Ints
from thalweg.engine.client_pool import ClientPool
from thalweg.evaluation.alarms import HasChanges
from thalweg.scenarios import Scenario


class TrueDrifts:
    """All drifts of the clients of a run; rows list clients and kinds of drift if `by_name`."""

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
        """Whether the rounds of all drifts are known.

        Clients that do not collect while absent have clocks of their own. On a network these are
        unknown to the server.
        """
        world = self._client_pool.world
        return isinstance(world, HasChanges) and (
            world.collects_when_absent or bool(self._client_pool.states)
        )

    def clock(self, rounds_done: int) -> Ints:
        """Return the last round of each client's stream, (N,)."""
        if not len(self._rounds):
            return np.empty(0, dtype=np.int64)
        when = self._client_pool.clock(max(rounds_done - 1, 0))
        return np.broadcast_to(when, self._client_pool.world.num_clients).astype(np.int64)

    def make_row(self, before: Ints, now: Ints) -> dict[str, Any]:
        """Return metrics of the clients that drifted between two clocks; empty without drift."""
        if not len(self._rounds):
            return {}
        who, when = self._clients, self._rounds
        has_drifted = (before[who] < when) & (when <= now[who])
        if not has_drifted.any():
            return {}
        row: dict[str, Any] = {"drifted": len(np.unique(who[has_drifted]))}
        if self._by_name:
            kinds = np.unique(self._kinds[has_drifted]).tolist()
            of_kind = {kind: who[has_drifted & (self._kinds == kind)] for kind in kinds}
            row["drifts"] = {kind: np.unique(whose).tolist() for kind, whose in of_kind.items()}
        return row

    def needs_tasks(self, scenario: Scenario, rounds_done: int) -> bool:
        """Return whether to evaluate all tasks: at the end, and before a client drifts.

        Clients with clocks of their own may drift in any round.
        """
        if not scenario.tasks:
            return False
        if rounds_done == scenario.rounds or not self._client_pool.world.collects_when_absent:
            return True
        next_evaluation = (rounds_done // scenario.evaluate_every + 1) * scenario.evaluate_every
        return bool(((self._rounds >= rounds_done) & (self._rounds < next_evaluation)).any())
