"""A world whose clients bring their own data, so that nothing of it is known here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.types import Arrival, Floats, Ints, Supply
from thalweg.streams.base import Setting, StateTable


@dataclass(frozen=True)
class Live:
    """Clients on a network, each with live data of its own (``thalweg serve``, ``thalweg join``).

    What arrives where and when, nobody knows beforehand. The scenario's data set only says what samples look like,
    and is what the model is tested on.
    """

    num_clients: int = 10
    """At most so many clients can join."""

    def __post_init__(self) -> None:
        check_ranges(self, num_clients="[1, inf)")

    def build(self, setting: Setting) -> LiveWorld:
        return LiveWorld(self.num_clients, setting, make_live_states(setting.num_classes))


@dataclass(frozen=True, eq=False)
class LiveWorld:
    """What a server knows of such clients: how many there may be. Nothing ever arrives by it."""

    num_clients: int
    setting: Setting
    state_table: StateTable
    collects_when_absent: bool = False  # what comes between rounds is the client's own business
    clients_are_groups: bool = False

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
        """Everybody; who is connected is for the network to say."""
        return np.arange(self.num_clients)

    def capacity(self, client: int) -> int:
        return self.setting.capacity

    def supply(self, client: int) -> Supply:
        return make_live_supply(self.setting.rounds)

    def true_state_probs(self, client: int) -> Floats:
        return np.ones(1)

    def begin(self, client: int) -> tuple[None, Arrival]:
        return None, split_into_ticks(np.empty(0, dtype=np.int64), 1)[0]

    def emit(self, state: None, client: int, lived: int) -> tuple[None, list[Arrival]]:
        return None, split_into_ticks(np.empty(0, dtype=np.int64), self.ticks)


def make_live_states(num_classes: int) -> StateTable:
    """One latent state, of which nothing is known: any class is as likely as any other."""
    return StateTable(np.full((1, num_classes), 1 / num_classes), np.ones(1))


def make_live_supply(rounds: int) -> Supply:
    """Nobody knows how many samples will come, which is said as none."""
    return Supply(0.0, False, float(rounds))


def split_into_ticks(rows: Ints, ticks: int) -> list[Arrival]:
    """Rows in the order of their coming as the arrivals of so many ticks.

    >>> [arrival.items.tolist() for arrival in split_into_ticks(np.array([4, 0, 2, 7, 1]), 3)]
    [[4, 0], [2, 7], [1]]
    """
    return [Arrival(part, 0) for part in np.array_split(rows, ticks)]
