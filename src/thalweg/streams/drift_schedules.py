"""Drift schedules for any world: which clients change their view of the data, and when."""

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
CLIENTS_DRAW = 2  # index (`take`) of the draw that chooses the clients
OTHER_LABELS = View(labels=1)


@dataclass(frozen=True)
class Sudden:
    """Sudden drift: all samples switch to another view in one round."""

    at: int = 20
    """First round of the new view, counted from 0."""
    to: View = OTHER_LABELS
    """The new view; the default reverses all labels."""
    share: float = 1.0
    """Share of the clients that drift, drawn at random; at least one client."""

    def __post_init__(self) -> None:
        check_ranges(self, at=ROUND_RANGE, share="(0, 1]")

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        who = _draw_clients(self.share, num_clients, setting)
        at = np.full(len(who), self.at)
        return build_timeline([ViewChange(who, at, at, self.to)], num_clients, setting.num_classes)


@dataclass(frozen=True)
class Gradual:
    """Gradual drift: the share of samples in the new view rises linearly.

    In round t of `start` .. `until` the share is (t - start + 1) / (until - start + 1).
    """

    start: int = 10
    """First round with samples of the new view."""
    until: int = 30
    """First round in which all samples are in the new view."""
    to: View = OTHER_LABELS
    share: float = 1.0
    """Share of the clients that drift, drawn at random; at least one client."""

    def __post_init__(self) -> None:
        check_ranges(self, start=ROUND_RANGE, until=ROUND_RANGE, share="(0, 1]")
        require(
            self.until >= self.start,
            f"until must not be before start, got start={self.start} and until={self.until}.",
        )

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        who = _draw_clients(self.share, num_clients, setting)
        start, until = np.full(len(who), self.start), np.full(len(who), self.until)
        return build_timeline(
            [ViewChange(who, start, until, self.to)], num_clients, setting.num_classes
        )


@dataclass(frozen=True)
class Incremental:
    """Incremental drift: images rotate further every few rounds. For image data only."""

    degrees: float = 10.0
    every: int = 5
    """Rounds between two rotations; the first rotation happens after this many rounds."""
    share: float = 1.0
    """Share of the clients that drift, drawn at random; at least one client."""

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
    """Recurring drift: views alternate, and the first view returns after the last one."""

    period: int = 20
    """Number of rounds for which each view lasts."""
    views: tuple[View, ...] = (View(), OTHER_LABELS)
    """Views in order; the first one is the initial view."""
    share: float = 1.0
    """Share of the clients that drift, drawn at random; at least one client."""

    def __post_init__(self) -> None:
        check_ranges(self, period="[1, inf)", share="(0, 1]")
        require(len(self.views) >= 1, "views must contain at least one view.")

    def timeline(self, num_clients: int, setting: Setting) -> Timeline:
        who = _draw_clients(self.share, num_clients, setting)
        turns = []
        for number in range(-(-setting.rounds // self.period)):
            at = np.full(len(who), number * self.period)
            turns.append(ViewChange(who, at, at, self.views[number % len(self.views)]))
        return build_timeline(turns, num_clients, setting.num_classes)


@dataclass(frozen=True)
class Staggered:
    """Staggered drift: clients drift suddenly, one after the other.

    Client k in round at + lag * k.
    """

    at: int = 10
    """Round in which client 0 drifts, counted from 0."""
    lag: int = 1
    """Delay, in rounds, between consecutive clients."""
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
    """Ids of the clients that drift, ascending."""
    count = max(1, round(share * num_clients))
    rng = rng_for(setting.seed, Draw.DRIFT, take=CLIENTS_DRAW)
    return np.sort(rng.choice(num_clients, count, replace=False))
