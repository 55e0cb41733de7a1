"""All clients of an embedded run: their states, who is here, who has changed."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from thalweg.core.talk import Look
from thalweg.core.trees import Tree, like
from thalweg.core.types import Job, Roster, Supplies
from thalweg.recipes.client import Clients, ClientState, Heard
from thalweg.recipes.visit import ClientRound, enter
from thalweg.streams import Timetable, World, supplies_of


class Crowd:
    """The clients' states. Nobody costs anything before taking part for the first time."""

    def __init__(self, clients: Clients, world: World, timetable: Timetable | None = None) -> None:
        self.clients, self.world, self.timetable = clients, world, timetable
        self.states: dict[int, ClientState] = {}
        self.changed: set[int] = set()  # since the last checkpoint

    def roster(self, rnd: int) -> Roster:
        world = self.world
        nobody = np.zeros(world.num_clients, dtype=np.int64)
        here, availability, session = world.here(rnd), world.availability, None
        if self.timetable is not None:
            session = self.timetable.session(rnd)
            here = np.intersect1d(here, session.members, assume_unique=True)
            availability = availability * self.timetable.attendance
        return Roster(rnd, here, availability, nobody, supplies=self._supplies, session=session)

    @cached_property
    def _supplies(self) -> Supplies:
        return supplies_of(self.world)

    def state(self, client: int) -> ClientState:
        """What a client remembers; of one that never took part, what it is born with."""
        state = self.states.get(client)
        return self.clients.newborn(client) if state is None else state

    def keep(self, client: int, state: ClientState) -> None:
        """Remember a client's state, if it is another one than before."""
        if self.states.get(client) is not state:
            self.states[client] = state
            self.changed.add(client)

    def enter(
        self, job: Job, rnd: int, look: Look | None = None, heard: Heard | None = None
    ) -> ClientRound:
        state, when = self.state(job.client), (job.session, job.rehearsal)
        return enter(self.clients, job.client, state, rnd, look, heard, *when)

    def leave(self, visit: ClientRound) -> None:
        self.keep(visit.client, visit.leave())

    def restore(self, trees: dict[int, Tree]) -> None:
        """Take states from a checkpoint; a newborn shows which types they had."""
        self.states = {
            client: like(self.clients.newborn(client), tree) for client, tree in trees.items()
        }
        self.changed = set()
