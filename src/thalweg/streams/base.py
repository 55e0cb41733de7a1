"""What a client reads, its stream, and what every world offers beside that: who is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from thalweg.core.types import Arrival, Floats, Ints, Supplies, Supply
from thalweg.core.views import View


@dataclass(frozen=True, eq=False)
class Setting:
    """What a world is built on: the data set's columns, and the size of the run."""

    labels: Ints  # (n,) of the training samples
    num_classes: int
    ticks: int  # times per round that data arrives
    capacity: int  # samples a client can hold, unless the world says otherwise
    rounds: int  # of the whole run
    seed: int
    group: Ints | None = None  # (n,) the client that each sample belongs to
    time: Floats | None = None  # (n,) when each sample came
    coarse: Ints | None = None  # (n,) coarse label of each sample


@dataclass(frozen=True, eq=False)
class StateTable:
    """What is common knowledge about the latent states of a world."""

    histograms: Floats  # (M, C) share of each class in each state
    importance: Floats  # (M,) weight of each state in the global objective
    embeddings: Floats | None = None  # (M, E) mean of some features over each state, if known

    @property
    def signatures(self) -> Floats:
        """(M, E) what tells states apart: their embeddings, else their class histograms.

        A histogram is an embedding too: the mean of the samples' one-hot labels.
        """
        return self.histograms if self.embeddings is None else self.embeddings

    @property
    def num_states(self) -> int:
        return len(self.importance)


class Stream(Protocol):
    """What arrives at a client, and what it knows of the world. Pure: the same question always has the
    same answer.

    All that the client's half of a round reads. In a simulation one object has the streams of all
    clients; a device on a network has its own, and is asked for no other client.
    """

    @property
    def ticks(self) -> int:
        """Times per round that data arrives."""
        ...

    @property
    def state_table(self) -> StateTable: ...

    @property
    def collects_when_absent(self) -> bool:
        """Does data reach a client in rounds in which it does not take part?"""
        ...

    def capacity(self, client: int) -> int:
        """Samples that the client can hold."""
        ...

    def supply(self, client: int) -> Supply:
        """How much data the client has over the whole run."""
        ...

    def true_state_probs(self, client: int) -> Floats:
        """(M,) the client's real state probabilities: for oracles and for tests."""
        ...

    def begin(self, client: int) -> tuple[Any, Arrival]:
        """The stream's state before the client's first round, and what the client starts with."""
        ...

    def emit(self, state: Any, client: int, lived: int) -> tuple[Any, list[Arrival]]:
        """One arrival per tick of the client's round number `lived`, counted by the client."""
        ...


class World(Stream, Protocol):
    """Streams of all clients, and who is here. For simulations: nobody on a network has one."""

    @property
    def num_clients(self) -> int: ...

    @property
    def availability(self) -> Floats:
        """(N,) probability that each client is here in a round."""
        ...

    @property
    def mixes(self) -> Floats:
        """(N, C) label mix of all data that each client has in the run; zeros: it has none."""
        ...

    @property
    def clients_are_groups(self) -> bool:
        """Is client n group n of the data set?"""
        ...

    def present(self, rnd: int) -> Ints:
        """Ids of the clients that can take part in a round, ascending."""
        ...


class DriftEvent(NamedTuple):
    """From this round on, one thing about the data of one client is another."""

    rnd: int  # by the client's clock: the run's rounds, or its own if it stands still while it is away
    client: int
    kind: Literal["real", "virtual", "label"]  # P(y | x), P(x), P(y)


@runtime_checkable
class HasViews(Protocol):
    """A world in which samples are seen in different ways: item v * n + i is sample i through view v.

    What it knows of drift is for evaluation and for oracles; no client reads it. Where it asks for a round, one
    for every client will do, too: (N,) rounds by their own clocks (`ClientPool.clock`).
    """

    @property
    def views(self) -> tuple[View, ...]:
        """V views, the first of them plain, with labels spelled out."""
        ...

    def views_at(self, rnd: int | Ints) -> Ints:
        """(N,) the view in which each client is tested after a round, counted from 0."""
        ...

    def concepts_at(self, rnd: int | Ints) -> Ints:
        """(N,) the concept of that view: views with the same labels have the same one."""
        ...

    def drift_events(self) -> list[DriftEvent]:
        """Every drift of the run, by round and client; one that is of two kinds is two of them."""
        ...


def collect_supplies(world: World) -> Supplies:
    """What every client will have had by the end of the run."""
    supplies = [world.supply(client) for client in range(world.num_clients)]
    total, is_historical, rounds = zip(*supplies, strict=True)
    return Supplies(np.array(total, float), np.array(is_historical), np.array(rounds, float))


class WorldSpec(Protocol):
    """A world's configuration: a frozen dataclass that builds the world in a setting."""

    def build(self, setting: Setting) -> World: ...
