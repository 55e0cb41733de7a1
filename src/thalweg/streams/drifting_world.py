"""A world with drift: arrivals of any world, shown through each client's current view."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from thalweg.core.errors import require
from thalweg.core.remedies import format_setting
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Arrival, Floats, Ints, Supplies, Supply
from thalweg.core.views import View
from thalweg.streams.base import DriftEvent, HasViews, Setting, StateTable, World, collect_supplies
from thalweg.streams.timeline import Timeline


class Drift(Protocol):
    """Configuration of a drift: a frozen dataclass that builds the timeline of views."""

    def timeline(self, num_clients: int, setting: Setting) -> Timeline: ...


def add_drift(world: World, drift: Drift | None, setting: Setting) -> World:
    """Add a drift to a world; the world itself if `drift` is None."""
    if drift is None:
        return world
    require(
        not isinstance(world, HasViews),
        f"{type(world).__name__} has views of its own, so drift={type(drift).__name__} cannot be "
        f"added; remove it ({format_setting('drift', None)}) or choose another world.",
    )
    timeline = drift.timeline(world.num_clients, setting)
    require(
        timeline.num_clients == world.num_clients,
        f"{type(drift).__name__}.timeline must return a timeline for {world.num_clients} clients, "
        f"got one for {timeline.num_clients}.",
    )
    return DriftingWorld(world, timeline, setting)


@dataclass(frozen=True, eq=False)
class DriftingWorld:
    """A world whose clients change from view to view.

    The clock is that of the client's stream: the rounds of the run if the client collects data
    while it is absent, else the client's own rounds. Presence, arrivals and the state table are
    those of the inner world; the state table describes samples in the identity view.
    """

    world: World
    timeline: Timeline
    setting: Setting

    # --- views ---

    @property
    def views(self) -> tuple[View, ...]:
        return self.timeline.views

    def views_at(self, rnd: int | Ints) -> Ints:
        return self.timeline.at(rnd)

    def concepts_at(self, rnd: int | Ints) -> Ints:
        return self.timeline.concepts[self.views_at(rnd)]

    def drift_events(self) -> list[DriftEvent]:
        return self.timeline.drift_events(self.setting.rounds)

    @cached_property
    def mixes(self) -> Floats:
        """Class distributions, weighted by the time that each client spends in each view.

        A client that has all samples from the start counts with its first view.
        """
        rounds = float(self.setting.rounds)
        collects = self.collects_when_absent
        num_rounds = np.full(self.num_clients, rounds) if collects else rounds * self.availability
        spent = self.timeline.time_in_views(num_rounds)
        historical = np.flatnonzero(collect_supplies(self.world).is_historical)
        spent[historical] = 0
        spent[historical, self.views_at(0)[historical]] = 1
        spent /= spent.sum(axis=1, keepdims=True)
        mixes = np.zeros_like(self.world.mixes)
        for view, share in zip(self.views, spent.T, strict=True):
            np.add.at(
                mixes.T,
                view.label_map(self.setting.num_classes),
                (share[:, None] * self.world.mixes).T,
            )
        return mixes

    # --- arrivals ---

    def begin(self, client: int) -> tuple[Any, Arrival]:
        """Samples available before the first round have the view of the first round."""
        state, arrival = self.world.begin(client)
        return state, self._apply_view([arrival], client, 0, take=1)[0]

    def emit(self, state: Any, client: int, stream_round: int) -> tuple[Any, list[Arrival]]:
        state, arrivals = self.world.emit(state, client, stream_round)
        return state, self._apply_view(arrivals, client, stream_round)

    def _apply_view(
        self, arrivals: list[Arrival], client: int, stream_round: int, take: int = 0
    ) -> list[Arrival]:
        old, new, share = self.timeline.view_transition(client, stream_round)
        n = len(self.setting.labels)
        if old == new:
            return [arrival._replace(items=arrival.items + new * n) for arrival in arrivals]
        rng = rng_for(self.setting.seed, Draw.DRIFT, stream_round, client, take)
        return [
            arrival._replace(
                items=arrival.items + n * np.where(rng.random(len(arrival.items)) < share, new, old)
            )
            for arrival in arrivals
        ]

    # --- unchanged parts of the inner world ---

    @property
    def ticks(self) -> int:
        return self.world.ticks

    @property
    def state_table(self) -> StateTable:
        return self.world.state_table

    @property
    def collects_when_absent(self) -> bool:
        return self.world.collects_when_absent

    @property
    def num_clients(self) -> int:
        return self.world.num_clients

    @property
    def availability(self) -> Floats:
        return self.world.availability

    @property
    def has_clients_of_data(self) -> bool:
        return self.world.has_clients_of_data

    def capacity(self, client: int) -> int:
        return self.world.capacity(client)

    def supply(self, client: int) -> Supply:
        return self.world.supply(client)

    def supplies(self) -> Supplies:
        return collect_supplies(self.world)

    def true_state_probs(self, client: int) -> Floats:
        return self.world.true_state_probs(client)

    def present(self, rnd: int) -> Ints:
        return self.world.present(rnd)
