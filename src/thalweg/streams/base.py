"""Streams (the data of one client) and worlds (streams and availability of all clients)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from thalweg.core.types import Arrival, Floats, Ints, Supplies, Supply
from thalweg.core.views import View


@dataclass(frozen=True, eq=False)
class Setting:
    """The input of a world: columns of the data set and the size of the run."""

    labels: Ints  # (n,) of the training samples
    num_classes: int
    ticks: int  # times per round at which data arrive
    capacity: int  # memory size of a client, unless the world sets its own
    rounds: int  # length of the run
    seed: int
    client: Ints | None = None  # (n,) client to which each sample belongs
    time: Floats | None = None  # (n,) time of each sample
    coarse: Ints | None = None  # (n,) coarse label of each sample
    client_test: Ints | None = None  # (n_test,) client to which each test sample belongs

    def count_clients(self) -> int:
        """Return the number of clients of the data; some may have test samples only."""
        columns = (self.client, self.client_test)
        return max(int(column.max(initial=-1)) + 1 for column in columns if column is not None)


@dataclass(frozen=True, eq=False)
class StateTable:
    """Public description of the latent states of a world."""

    histograms: Floats  # (M, C) class distribution of each state
    importance: Floats  # (M,) weight of each state in the global objective
    embeddings: Floats | None = None  # (M, E) mean feature vector of each state, if available

    @property
    def signatures(self) -> Floats:
        """(M, E) vectors that distinguish states: embeddings if available, else class histograms.

        A class histogram is the mean of one-hot labels, so it is an embedding as well.
        """
        return self.histograms if self.embeddings is None else self.embeddings

    @property
    def goal(self) -> Floats:
        """(E,) the signature that a client's memory should have.

        It is that of balanced classes; with embeddings, the mean over the states by importance.
        """
        if self.embeddings is not None:
            return self.importance @ self.embeddings
        num_classes = self.histograms.shape[1]
        return np.full(num_classes, 1 / num_classes)

    @property
    def num_states(self) -> int:
        return len(self.importance)


class Stream(Protocol):
    """The data of one client. All methods are pure: equal arguments give equal results.

    The client part of a round reads nothing else. A simulation has one object with the streams of
    all clients; a device has only its own stream.
    """

    @property
    def ticks(self) -> int:
        """Times per round at which data arrive."""
        ...

    @property
    def state_table(self) -> StateTable: ...

    @property
    def collects_when_absent(self) -> bool:
        """True if data reach a client in rounds in which it does not participate."""
        ...

    def capacity(self, client: int) -> int:
        """Number of samples that the client can store."""
        ...

    def supply(self, client: int) -> Supply:
        """Amount of data that the client has over the whole run."""
        ...

    def true_state_probs(self, client: int) -> Floats:
        """(M,) true state probabilities of the client: ground truth for oracles and tests."""
        ...

    def begin(self, client: int) -> tuple[Any, Arrival]:
        """Initial state of the stream, and the samples with which the client starts."""
        ...

    def emit(self, state: Any, client: int, stream_round: int) -> tuple[Any, list[Arrival]]:
        """New state of the stream, and one arrival per tick.

        `stream_round` is the client's own round number: the number of earlier rounds in which its
        stream has advanced.
        """
        ...


class World(Stream, Protocol):
    """The streams of all clients and their availability. Exists only in simulations."""

    @property
    def num_clients(self) -> int: ...

    @property
    def availability(self) -> Floats:
        """(N,) probability that each client is present in a round."""
        ...

    @property
    def mixes(self) -> Floats:
        """(N, C) class distribution of all data of each client during the run.

        Zeros if it has none.
        """
        ...

    @property
    def has_clients_of_data(self) -> bool:
        """True if client n is client n of the data set."""
        ...

    def present(self, rnd: int) -> Ints:
        """Ids of the clients that can participate in a round, ascending."""
        ...


class DriftEvent(NamedTuple):
    """A change in the data of one client, effective from round `rnd` on."""

    rnd: int  # round of the run, or of the client if its stream stops while it is absent
    client: int
    kind: Literal["real", "virtual", "label"]  # P(y | x), P(x), P(y)


@runtime_checkable
class HasViews(Protocol):
    """A world that shows samples through views: item v * n + i is sample i in view v.

    Views and drift times are ground truth for evaluation and for oracles; clients cannot read them.
    Arguments named `rnd` are one round for all clients, or (N,) rounds by the clients' own clocks
    (`ClientPool.clock`).
    """

    @property
    def views(self) -> tuple[View, ...]:
        """V views; the first one is the identity, with explicit labels."""
        ...

    def views_at(self, rnd: int | Ints) -> Ints:
        """(N,) view in which each client is tested after a round, counted from 0."""
        ...

    def concepts_at(self, rnd: int | Ints) -> Ints:
        """(N,) concept of that view; views with the same label map have the same concept."""
        ...

    def drift_events(self) -> list[DriftEvent]:
        """All drifts of the run, ordered by round and client.

        A drift of two kinds gives two events.
        """
        ...


@runtime_checkable
class HasSupplies(Protocol):
    """A world that computes the supplies of all clients at once."""

    def supplies(self) -> Supplies:
        """Return ``supply(client)`` of all clients."""
        ...


def collect_supplies(world: World) -> Supplies:
    """Expected amounts of data of all clients."""
    if isinstance(world, HasSupplies):
        return world.supplies()
    supplies = [world.supply(client) for client in range(world.num_clients)]
    total, is_historical, rounds = zip(*supplies, strict=True)
    return Supplies(np.array(total, float), np.array(is_historical), np.array(rounds, float))


def has_arrivals(world: World) -> bool:
    """Return whether some client receives samples after its start."""
    return any(not world.supply(client).is_historical for client in range(world.num_clients))


class WorldSpec(Protocol):
    """Configuration of a world: a frozen dataclass that builds the world in a setting."""

    def build(self, setting: Setting) -> World: ...
