"""The truth about drift in a run: who drifts when. For the metrics; nobody who learns is told."""

from __future__ import annotations

from typing import Any

import numpy as np

from thalweg.core.types import Ints
from thalweg.engine.crowd import Crowd
from thalweg.scenarios import Scenario
from thalweg.streams import HasViews


class Drifts:
    """Every drift of a run, as its world has it."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        events = crowd.world.changes() if isinstance(crowd.world, HasViews) else []
        self._rounds = np.array([event.rnd for event in events], dtype=np.int64)
        self._clients = np.array([event.client for event in events], dtype=np.int64)

    def clock(self, rounds_done: int) -> Ints:
        """(N,) the round that every client's stream was in last."""
        if not len(self._rounds):
            return np.empty(0, dtype=np.int64)
        when = self._crowd.clock(max(rounds_done - 1, 0))
        return np.broadcast_to(when, self._crowd.world.num_clients).astype(np.int64)

    def row(self, before: Ints, now: Ints) -> dict[str, Any]:
        """How many clients have drifted between two moments; nothing if nobody has."""
        if not len(self._rounds):
            return {}
        who, when = self._clients, self._rounds
        number = len(np.unique(who[(before[who] < when) & (when <= now[who])]))
        return {"drifted": number} if number else {}

    def shows_tasks(self, scenario: Scenario, rounds_done: int) -> bool:
        """Is it time to look at all tasks: in the end, and before somebody drifts?

        Clients with clocks of their own may drift at any time.
        """
        if not scenario.tasks:
            return False
        if rounds_done == scenario.rounds or not self._crowd.world.collects_when_absent:
            return True
        next_look = (rounds_done // scenario.evaluate_every + 1) * scenario.evaluate_every
        return bool(((self._rounds >= rounds_done) & (self._rounds < next_look)).any())
