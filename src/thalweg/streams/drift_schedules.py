"""Drifts for any world: whose samples are seen in another way, and from when on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.transforms import make_rotation
from thalweg.core.types import Ints
from thalweg.core.views import View
from thalweg.streams.base import Setting
from thalweg.streams.drift_table import DriftTable
from thalweg.streams.timeline import LAST_ROUND, Timeline, ViewChange, build_timeline

ROUND_RANGE = f"[0, {LAST_ROUND})"
CLIENTS_DRAW = 2  # repetition of the draw (`take`) that chooses clients
OTHER_LABELS = View(labels=1)


@dataclass(frozen=True)
class Sudden:
    """From one round on everything is seen in another way."""

    at: int = 20
    """The first round of the new view, counted from 0."""
    to: View = OTHER_LABELS
    """The new view; unless told otherwise, one with all labels reversed."""
    share: float = 1.0
    """Share of the clients that drift, drawn at random; at least one."""

    def __post_init__(self) -> None:
        check_ranges(self, at=ROUND_RANGE, share="(0, 1]")

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        who = _draw_clients(self.share, num_clients, setting)
        at = np.full(len(who), self.at)
        return build_timeline([ViewChange(who, at, at, self.to)], num_clients, setting.num_classes)


@dataclass(frozen=True)
class Gradual:
    """More and more samples are seen in another way: their share rises linearly, and each is drawn.

    In round t of `start` .. `until` it is (t - start + 1) / (until - start + 1).
    """

    start: int = 10
    """The first round with samples of the new view."""
    until: int = 30
    """The first round in which all are of the new view."""
    to: View = OTHER_LABELS
    share: float = 1.0
    """Share of the clients that drift, drawn at random; at least one."""

    def __post_init__(self) -> None:
        check_ranges(self, start=ROUND_RANGE, until=ROUND_RANGE, share="(0, 1]")
        require(
            self.until >= self.start,
            f"a gradual drift ends when it has begun: until={self.until} is before start={self.start}.",
        )

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        who = _draw_clients(self.share, num_clients, setting)
        start, until = np.full(len(who), self.start), np.full(len(who), self.until)
        return build_timeline(
            [ViewChange(who, start, until, self.to)], num_clients, setting.num_classes
        )


@dataclass(frozen=True)
class Incremental:
    """Images turn a little further every few rounds, for ever; for images only."""

    degrees: float = 10.0
    every: int = 5
    """Rounds between two turns; the first comes after so many."""
    share: float = 1.0
    """Share of the clients that drift, drawn at random; at least one."""

    def __post_init__(self) -> None:
        check_ranges(self, degrees="(-inf, inf)", every="[1, inf)", share="(0, 1]")

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        who = _draw_clients(self.share, num_clients, setting)
        turns = []
        for number in range(1, -(-setting.rounds // self.every)):
            at = np.full(len(who), number * self.every)
            turns.append(ViewChange(who, at, at, View(make_rotation(number * self.degrees))))
        return build_timeline(turns, num_clients, setting.num_classes)


@dataclass(frozen=True)
class RecurringDrift:
    """Views take turns, and the first one comes back after the last."""

    period: int = 20
    """Rounds that each view lasts."""
    views: tuple[View, ...] = (View(), OTHER_LABELS)
    """Those that take turns; the first one is there at the start."""
    share: float = 1.0
    """Share of the clients that drift, drawn at random; at least one."""

    def __post_init__(self) -> None:
        check_ranges(self, period="[1, inf)", share="(0, 1]")
        require(len(self.views) >= 1, "a recurring drift needs at least one view.")

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        who = _draw_clients(self.share, num_clients, setting)
        turns = []
        for number in range(-(-setting.rounds // self.period)):
            at = np.full(len(who), number * self.period)
            turns.append(ViewChange(who, at, at, self.views[number % len(self.views)]))
        return build_timeline(turns, num_clients, setting.num_classes)


@dataclass(frozen=True)
class Staggered:
    """Clients drift suddenly, one after the other: client k in round at + lag * k."""

    at: int = 10
    """The round in which client 0 drifts, counted from 0."""
    lag: int = 1
    """Rounds by which each client is later than the one before."""
    to: View = OTHER_LABELS

    def __post_init__(self) -> None:
        check_ranges(self, at=ROUND_RANGE, lag=ROUND_RANGE)

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        who = np.arange(num_clients)
        at = self.at + self.lag * who
        is_played = at < setting.rounds
        turn = ViewChange(who[is_played], at[is_played], at[is_played], self.to)
        return build_timeline([turn], num_clients, setting.num_classes)


DRIFTS = {
    "sudden": Sudden,
    "gradual": Gradual,
    "incremental": Incremental,
    "recurring": RecurringDrift,
    "staggered": Staggered,
    "table": DriftTable,
}


def _draw_clients(share: float, num_clients: int, setting: Setting) -> Ints:
    """Who drifts, ascending."""
    count = max(1, round(share * num_clients))
    rng = rng_for(setting.seed, Draw.DRIFT, take=CLIENTS_DRAW)
    return np.sort(rng.choice(num_clients, count, replace=False))
