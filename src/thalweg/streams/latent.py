"""The world of SFedPO: clients switch between latent states with fixed data distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from thalweg.core.config import check_literals, check_ranges, choice
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.transforms import Dimmed, Plain, make_rotation
from thalweg.core.types import Arrival, Floats, Ints, Supplies, Supply
from thalweg.core.views import View, concepts_of, distinct_views
from thalweg.streams.base import DriftEvent, Setting, StateTable
from thalweg.streams.drawing import draw_availability, draw_present, draw_rows, moving_rounds
from thalweg.streams.splitting import (
    label_prior_pools,
    make_imbalanced,
    split_by_dirichlet,
    stratified_parts,
)
from thalweg.streams.state_dynamics import DYNAMICS, StateDynamics
from thalweg.streams.state_probs import (
    FullProbs,
    PartialProbs,
    StateProbs,
    mean_probs,
    multiply_probs,
)


@dataclass(frozen=True)
class LatentStates:
    r"""Clients switch between latent states.

    Each state is a pool of samples with its own class mix.

    At every tick, client n is in state m with probability :math:`\pi_{n,m}` and receives new
    samples of that state. States form clusters; the Dirichlet parameter of a cluster controls the
    skew of its states. With `dynamics` the probabilities change over time, and :math:`\pi_{n,m}`
    are those of the long run.

    With `rotations` or `brightness` the states of a cluster also differ in their images: they show
    them in turns with each rotation, then with each brightness. Each of these is a view of the
    data. Client n is tested in view n modulo the number of views, so that the mean accuracy of the
    clients is that on all views. The embedding of a state is the share of each class in each view.

    Symbols, SFedPO -> here
        N                        -> num_clients
        M (clusters x states)    -> clusters, states_per_cluster
        :math:`q_n`              -> availability, availability_spread
        :math:`w_m`              -> importance
        :math:`\pi_n`            -> drawn: Dir(1) over the states the client can reach
    """

    needs_class_labels: ClassVar[bool] = True  # states are class mixes

    num_clients: int = 30
    clusters: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0, 100.0)
    """Dirichlet parameter of each cluster of states; small values give skewed states."""
    states_per_cluster: int = 10
    access: Literal["full", "partial"] = "partial"
    """full: every client can reach every state; partial: only `reachable` states."""
    reachable: int = 10
    confined: float = 0.5
    """Share of clients with states in the two most skewed clusters only (partial access)."""
    state_data: Literal["partition", "label_prior"] = "partition"
    min_state_size: int = 10
    imbalance: float | None = None
    """Class k keeps `imbalance` ** k times as many samples as class 0, which keeps as many as the
    smallest class has; other samples are not used. None: classes are unchanged.
    """
    stickiness: float = 0.0
    """Probability of staying in a state at a tick.

    0 gives independent states, other values a Markov chain with the same stationary distribution.
    """
    dynamics: StateDynamics | None = choice(DYNAMICS, default=None)
    """How the state probabilities of a client change over time; None: they are constant."""
    rotations: tuple[float, ...] = ()
    """Rotations of the images of the states, in degrees; empty: none."""
    brightness: tuple[float, ...] = ()
    """Factors of the brightness of the images of the states; empty: 1."""
    importance: Literal["uniform", "frequency"] = "uniform"
    availability: float = 0.2
    availability_spread: float = 0.01
    absent: Literal["frozen", "collecting"] = "frozen"
    """Streams of absent clients. frozen: they pause; collecting: they advance in every round."""
    arrivals: int | None = None
    """Samples per tick; None: as many as the memory holds."""

    def __post_init__(self) -> None:
        check_literals(self)
        check_ranges(
            self,
            num_clients="[1, CLIENTS]",
            states_per_cluster="[1, MODELS]",
            reachable="(-inf, inf)",
            confined="[0, 1]",
            imbalance="(0, 1] or none",
            stickiness="[0, 1)",
            min_state_size="[1, inf)",
            availability="(0, 1]",
            availability_spread="[0, inf)",
            arrivals="[1, ARRIVALS] or none",
        )
        require(
            len(self.clusters) >= 1 and all(0 < a < math.inf for a in self.clusters),
            f"clusters must be positive, finite Dirichlet parameters, got {self.clusters}.",
        )
        options = self.states_per_cluster * (
            min(2, len(self.clusters)) if self.confined > 0 else len(self.clusters)
        )
        require(
            self.access == "full" or 1 <= self.reachable <= options,
            f"reachable must lie between 1 and {options}, the number of states that a client may "
            "choose from (confined clients: states of the two most skewed clusters), got "
            f"{self.reachable}.",
        )

        require(
            all(0 <= factor < math.inf for factor in self.brightness)
            and all(map(math.isfinite, self.rotations)),
            "rotations must be finite angles and brightness finite factors of at least 0, got "
            f"{self.rotations} and {self.brightness}.",
        )
        num_views = len(self.rotations) + len(self.brightness)
        require(
            num_views <= self.states_per_cluster,
            f"the states of a cluster show {num_views} rotations and factors of brightness in "
            f"turns, but a cluster has {self.states_per_cluster} states. Set "
            f"states_per_cluster={num_views}, or use fewer rotations and factors.",
        )

    @property
    def num_states(self) -> int:
        return len(self.clusters) * self.states_per_cluster

    def build(self, setting: Setting) -> LatentWorld:
        """Assign the samples to states and draw the state probabilities of every client.

        Client and time columns of the data set are not used.
        """
        labels, num_classes = setting.labels, setting.num_classes
        pools = self._pools(labels, rng_for(setting.seed, Draw.PARTITION))
        rng = rng_for(setting.seed, Draw.WORLD)
        probs = self._draw_probs(rng)
        availability = draw_availability(
            self.num_clients, self.availability, self.availability_spread, rng
        )
        counts = np.stack([np.bincount(labels[pool], minlength=num_classes) for pool in pools])
        importance = (
            np.full(self.num_states, 1 / self.num_states)
            if self.importance == "uniform"
            else mean_probs(probs)
        )
        world = LatentWorld(
            spec=self,
            pools=tuple(pools),
            probs=probs,
            availability=availability,
            state_table=StateTable(counts / counts.sum(axis=1, keepdims=True), importance),
            ticks=setting.ticks,
            start_size=setting.capacity,
            arrival_size=self.arrivals or setting.capacity,
            rounds=setting.rounds,
            seed=setting.seed,
        )
        return self._add_views(world, setting) if self.rotations or self.brightness else world

    def _add_views(self, world: LatentWorld, setting: Setting) -> LatentViewsWorld:
        """Show the samples of each state in its view."""
        looks = [
            *(make_rotation(angle) for angle in self.rotations),
            *(Plain() if factor == 1 else Dimmed(factor) for factor in self.brightness),
        ]
        views, numbers = distinct_views(map(View, looks), setting.num_classes)
        of_state = np.array(numbers)[
            np.arange(self.num_states) % self.states_per_cluster % len(numbers)
        ]
        rows = len(setting.labels) * of_state
        shown, position = np.unique(of_state, return_inverse=True)
        is_view = np.eye(len(shown))[position]  # (M, shown views)
        histograms = world.state_table.histograms
        embeddings = (is_view[:, :, None] * histograms[:, None, :]).reshape(self.num_states, -1)
        return LatentViewsWorld(
            **{
                **{field.name: getattr(world, field.name) for field in fields(world)},
                "pools": tuple(
                    pool + shift for pool, shift in zip(world.pools, rows.tolist(), strict=True)
                ),
                "state_table": replace(world.state_table, embeddings=embeddings),
            },
            views=views,
            shown=shown,
            num_classes=setting.num_classes,
        )

    def _pools(self, labels: Ints, rng: np.random.Generator) -> list[Ints]:
        fill = split_by_dirichlet if self.state_data == "partition" else label_prior_pools
        rows = np.arange(len(labels))
        if self.imbalance is not None:
            rows = np.sort(make_imbalanced(rows, labels, self.imbalance, rng))
        parts = stratified_parts(labels[rows], len(self.clusters), rng)
        return [
            pool
            for part, concentration in zip(parts, self.clusters, strict=True)
            for pool in fill(
                rows[part], labels, self.states_per_cluster, concentration, self.min_state_size, rng
            )
        ]

    def _draw_probs(self, rng: np.random.Generator) -> StateProbs:
        """Draw the state probabilities of every client."""
        if self.access == "full":
            return FullProbs.draw(self.num_clients, self.num_states, rng)
        skewed = np.argsort(self.clusters, kind="stable")[:2]  # the two most skewed clusters
        size = self.states_per_cluster
        confined_to = np.concatenate([np.arange(c * size, (c + 1) * size) for c in skewed])
        num_confined = round(self.confined * self.num_clients)
        options = [
            (confined_to, num_confined),
            (np.arange(self.num_states), self.num_clients - num_confined),
        ]
        return PartialProbs.draw(self.num_states, self.reachable, options, rng)


class LatentCursor(NamedTuple):
    """Current position of a client's state process."""

    state: int
    position: Any = None  # of the world's dynamics


@dataclass(frozen=True, eq=False)
class LatentWorld:
    """The world built by `LatentStates`: pools of rows, and one state process per client."""

    spec: LatentStates
    pools: tuple[Ints, ...]  # M arrays of rows
    probs: StateProbs  # (N, M)
    availability: Floats  # (N,)
    state_table: StateTable
    ticks: int
    start_size: int
    arrival_size: int
    rounds: int
    seed: int

    @property
    def num_clients(self) -> int:
        return self.spec.num_clients

    @property
    def collects_when_absent(self) -> bool:
        return self.spec.absent == "collecting"

    @property
    def mixes(self) -> Floats:
        return multiply_probs(self.probs, self.state_table.histograms)

    @property
    def has_clients_of_data(self) -> bool:
        return False

    def capacity(self, client: int) -> int:
        return self.start_size

    def supply(self, client: int) -> Supply:
        """A full memory at the start, and the same number of samples in every round."""
        here = self.rounds * float(self.availability[client])
        num_rounds = moving_rounds(self.rounds, here, self.collects_when_absent)
        return Supply(self.start_size + self.ticks * self.arrival_size * num_rounds, False, here)

    def supplies(self) -> Supplies:
        rounds = self.rounds * self.availability
        moving = (
            np.full(self.num_clients, float(self.rounds)) if self.collects_when_absent else rounds
        )
        total = self.start_size + self.ticks * self.arrival_size * moving
        return Supplies(total, np.zeros(self.num_clients, dtype=np.bool_), rounds)

    def present(self, rnd: int) -> Ints:
        return draw_present(self.availability, self.seed, rnd)

    def true_state_probs(self, client: int) -> Floats:
        row: Floats = self.probs.rows(client, client + 1)[0]
        return row

    def begin(self, client: int) -> tuple[LatentCursor, Arrival]:
        """A full memory of samples of the client's first state, which does not count as a tick."""
        rng = rng_for(self.seed, Draw.INITIAL_MEMORY, 0, client)
        uniform, position = rng.random(1), None
        if (dynamics := self.spec.dynamics) is not None:
            position = dynamics.begin(rng_for(self.seed, Draw.DYNAMICS, 0, client))
            uniform = (dynamics.start(position) + dynamics.length * uniform) % 1.0
        state = int(self._draw_states(client, uniform)[0])
        return LatentCursor(state, position), Arrival(
            draw_rows(self.pools[state], self.start_size, rng), state
        )

    def emit(
        self, state: LatentCursor, client: int, stream_round: int
    ) -> tuple[LatentCursor, list[Arrival]]:
        rng = rng_for(self.seed, Draw.STREAM, stream_round, client)
        uniform, position = rng.random(self.ticks), state.position  # (T,)
        if (dynamics := self.spec.dynamics) is not None:
            position, starts = dynamics.move(
                position,
                stream_round * self.ticks,
                self.ticks,
                rng_for(self.seed, Draw.DYNAMICS, stream_round + 1, client),
            )
            uniform = (starts + dynamics.length * uniform) % 1.0
        drawn = self._draw_states(client, uniform)  # (T,)
        stays = rng.random(self.ticks) < self.spec.stickiness  # (T,)
        now, arrivals = state.state, []
        for fresh, stay in zip(drawn.tolist(), stays.tolist(), strict=True):
            now = now if stay else fresh
            arrivals.append(Arrival(draw_rows(self.pools[now], self.arrival_size, rng), now))
        return LatentCursor(now, position), arrivals

    def _draw_states(self, client: int, uniform: Floats) -> Ints:
        """Draw states by inverting the cumulative distribution.

        Unreachable states are never drawn.
        """
        reach, probs = self.probs.reachable(client)
        cumulative = np.cumsum(probs)
        states: Ints = reach[np.searchsorted(cumulative, uniform * cumulative[-1], side="right")]
        return states


@dataclass(frozen=True, eq=False)
class LatentViewsWorld(LatentWorld):
    """A world whose states also differ in their images; the pools are rows in the states' views."""

    views: tuple[View, ...]
    shown: Ints  # numbers of the views that states have, ascending; the plain one may be missing
    num_classes: int

    def views_at(self, rnd: int | Ints) -> Ints:
        """(N,) view in which each client is tested, the same in all rounds."""
        found: Ints = self.shown[np.arange(self.num_clients) % len(self.shown)]
        return found

    def concepts_at(self, rnd: int | Ints) -> Ints:
        return self._concepts[self.views_at(rnd)]

    def drift_events(self) -> list[DriftEvent]:
        """None: the states of a client change, but not their views."""
        return []

    @cached_property
    def _concepts(self) -> Ints:
        return concepts_of(self.views, self.num_classes)
