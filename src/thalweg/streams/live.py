"""A world whose clients have their own live data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Arrival, Floats, Ints, Supply
from thalweg.streams.base import Setting, StateTable


@dataclass(frozen=True)
class Live:
    """Clients on a network with their own live data (``thalweg serve``, ``thalweg join``).

    Arrivals are not known in advance. The scenario's data set only defines the sample format and is
    used to test the model.
    """

    num_clients: int = 10
    """Maximum number of clients that can join."""

    def __post_init__(self) -> None:
        check_ranges(self, num_clients="[1, CLIENTS]")

    def build(self, setting: Setting) -> LiveWorld:
        return LiveWorld(self.num_clients, setting, make_live_states(setting.num_classes))


@dataclass(frozen=True, eq=False)
class LiveWorld:
    """The server's view of live clients: their maximum number. It produces no arrivals."""

    num_clients: int
    setting: Setting
    state_table: StateTable
    collects_when_absent: bool = False  # data between rounds are handled by the client
    has_clients_of_data: bool = False

    @property
    def ticks(self) -> int:
        return self.setting.ticks

    @cached_property
    def availability(self) -> Floats:
        return np.ones(self.num_clients)

    @cached_property
    def mixes(self) -> Floats:
        return np.zeros((self.num_clients, self.setting.num_classes))

    def present(self, rnd: int) -> Ints:
        """All clients; the network determines which ones are connected."""
        return np.arange(self.num_clients)

    def capacity(self, client: int) -> int:
        return self.setting.capacity

    def supply(self, client: int) -> Supply:
        return make_live_supply(self.setting.rounds)

    def true_state_probs(self, client: int) -> Floats:
        return np.ones(1)

    def begin(self, client: int) -> tuple[None, Arrival]:
        return None, split_into_ticks(np.empty(0, dtype=np.int64), 1)[0]

    def emit(self, state: None, client: int, stream_round: int) -> tuple[None, list[Arrival]]:
        return None, split_into_ticks(np.empty(0, dtype=np.int64), self.ticks)


def make_live_states(num_classes: int) -> StateTable:
    """One latent state with a uniform class distribution."""
    return StateTable(np.full((1, num_classes), 1 / num_classes), np.ones(1))


def make_live_supply(rounds: int) -> Supply:
    """An unknown amount of data, represented by 0 samples."""
    return Supply(0.0, False, float(rounds))


def split_into_ticks(rows: Ints, ticks: int) -> list[Arrival]:
    """Distribute rows, in order of arrival, over ticks.

    >>> [arrival.items.tolist() for arrival in split_into_ticks(np.array([4, 0, 2, 7, 1]), 3)]
    [[4, 0], [2, 7], [1]]
    """
    return [Arrival(part, 0) for part in np.array_split(rows, ticks)]
