"""What every world offers: who is here, and what arrives there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from thalweg.core.types import Arrival, Floats, Ints


@dataclass(frozen=True, eq=False)
class StateBook:
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


class World(Protocol):
    """Streams of all clients. Pure: the same question always has the same answer."""

    @property
    def num_clients(self) -> int: ...

    @property
    def ticks(self) -> int:
        """Times per round that data arrives."""
        ...

    @property
    def book(self) -> StateBook: ...

    @property
    def availability(self) -> Floats:
        """(N,) probability that each client is here in a round."""
        ...

    @property
    def collects_when_absent(self) -> bool:
        """Does data reach a client in rounds in which it does not take part?"""
        ...

    def here(self, rnd: int) -> Ints:
        """Ids of the clients that can take part in a round, ascending."""
        ...

    def truth(self, client: int) -> Floats:
        """(M,) the client's real state probabilities: for oracles and for tests."""
        ...

    def begin(self, client: int) -> tuple[Any, Arrival]:
        """The stream's state before the client's first round, and what the client starts with."""
        ...

    def emit(self, state: Any, client: int, lived: int) -> tuple[Any, list[Arrival]]:
        """One arrival per tick of the client's round number `lived`, counted by the client."""
        ...


class WorldSpec(Protocol):
    """A world's configuration: a frozen dataclass that builds the world on a data set's labels."""

    def build(
        self,
        labels: Ints,
        num_classes: int,
        *,
        group: Ints | None,
        time: Floats | None,
        ticks: int,
        capacity: int,
        seed: int,
    ) -> World: ...
