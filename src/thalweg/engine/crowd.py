"""All clients of an embedded run: their states, who is here, who has changed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from thalweg.core.talk import Look
from thalweg.core.trees import Tree
from thalweg.core.types import Floats, Ints, Job, Roster, Supplies
from thalweg.recipes.client import Clients, ClientState, Heard
from thalweg.recipes.visit import ClientRound, enter
from thalweg.streams import Timetable, World, attended, supplies_of


class Crowd:
    """The clients' states. Nobody costs anything before taking part for the first time."""

    def __init__(self, clients: Clients, world: World, timetable: Timetable | None = None) -> None:
        self.clients, self.world, self.timetable = clients, world, timetable
        self.states: dict[int, ClientState] = {}
        self.changed: set[int] = set()  # since the last checkpoint

    def roster(self, rnd: int) -> Roster:
        return roster_of(self.world, self.timetable, rnd, self._supplies, self._clock(rnd))

    def _clock(self, rnd: int) -> int | Ints:
        """The round that streams are in as round `rnd` begins; (N,) if they stand still while clients are away."""
        if self.world.collects_when_absent or not isinstance(self.world, KnowsConcepts):
            return rnd
        lived = np.zeros(self.world.num_clients, dtype=np.int64)
        for client, state in self.states.items():
            lived[client] = state.lived
        return lived

    @cached_property
    def availability(self) -> Floats:
        """(N,) probability that each client is here in a round of the run."""
        return availability_of(self.world, self.timetable)

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

    def clock(self, rnd: int, is_over: bool = True) -> int | Ints:
        """The round that streams are in when round `rnd` is over, or before it.

        One for all if clients collect while they are away, else (N,) by the rounds that each has lived.
        """
        if self.world.collects_when_absent:
            return rnd
        lived = np.zeros(self.world.num_clients, dtype=np.int64)
        for client, state in self.states.items():
            lived[client] = state.lived
        return np.maximum(lived - int(is_over), 0)

    def enter(
        self,
        jobs: Sequence[Job],
        rnd: int,
        looks: Sequence[Look] = (),
        heard: Heard | None = None,
    ) -> ClientRound:
        """A client's part in a round, in which it trains one model or several."""
        job, models = jobs[0], [each.model for each in jobs]
        state, when = self.state(job.client), (job.session, job.rehearsal)
        return enter(self.clients, job.client, state, rnd, looks, heard, *when, models)

    def leave(self, visit: ClientRound) -> None:
        self.keep(visit.client, visit.leave())

    def restore(self, trees: dict[int, Tree]) -> None:
        """Take states from a checkpoint."""
        self.states = {client: self.clients.revived(client, tree) for client, tree in trees.items()}
        self.changed = set()


@runtime_checkable
class KnowsConcepts(Protocol):
    """A world in which what is right depends on the client and the round."""

    def concept_of(self, rnd: int | Ints) -> Ints:
        """(N,) the concept of each client in a round, counted from 0, or in (N,) rounds by their own clocks."""
        ...


def roster_of(
    world: World,
    timetable: Timetable | None,
    rnd: int,
    supplies: Supplies,
    clock: int | Ints | None = None,
) -> Roster:
    """Who is here in a round: of the session's members those whom the world has there.

    `supplies` are those of the world, which knows nothing of sessions. `clock` is the round that streams are in;
    none: the same. A world that knows of no concepts has one.
    """
    nobody, here = np.zeros(world.num_clients, dtype=np.int64), world.here(rnd)
    availability, session = availability_of(world, timetable), None
    if timetable is not None:
        session = timetable.session(rnd)
        here = np.intersect1d(here, session.members, assume_unique=True)
        supplies = attended(supplies, timetable.attendance, world.collects_when_absent)
    concepts = nobody
    if isinstance(world, KnowsConcepts):
        concepts = world.concept_of(rnd if clock is None else clock)
    return Roster(
        rnd, here, availability, nobody, supplies=supplies, session=session, concepts=concepts
    )


def availability_of(world: World, timetable: Timetable | None) -> Floats:
    """(N,) the world's, in the share of the run in which each client is a member."""
    if timetable is None:
        return world.availability
    return world.availability * timetable.attendance
