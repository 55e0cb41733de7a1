"""Timelines: the view of every client in every round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints
from thalweg.core.views import View, concepts_of, distinct_views
from thalweg.streams.base import DriftEvent

BEFORE_START = -1  # round of the initial identity view
LAST_ROUND = 2**31  # larger than any round number


class ViewChange(NamedTuple):
    """Some clients change to another view.

    The share of samples in the new view rises linearly from round `first` and reaches one in round
    `full`; `full` equals `first` for a sudden change.
    """

    clients: Ints  # (k,)
    first: Ints  # (k,) one per client
    full: Ints  # (k,)
    view: View


@dataclass(frozen=True, eq=False)
class Timeline:
    """View changes of all clients, ordered by client and time; the first is the identity view."""

    num_clients: int
    num_classes: int
    views: tuple[View, ...]  # V views; the first is the identity
    clients: Ints  # (T,)
    first: Ints  # (T,)
    full: Ints  # (T,)
    view_ids: Ints  # (T,) index of the view

    def at(self, rnd: int | Ints) -> Ints:
        """(N,) view of the majority of each client's samples in a round.

        Ties go to the new view.
        """
        change = self._change_indices(
            np.broadcast_to(np.asarray(rnd, dtype=np.int64), self.num_clients)
        )
        is_new = 2 * self._share(change, rnd) >= 1
        return self.view_ids[np.where(is_new, change, change - 1)]

    def view_transition(self, client: int, rnd: int) -> tuple[int, int, float]:
        """Previous view, new view, and share of the new view of a client in a round."""
        change = int(np.searchsorted(self._keys, client * LAST_ROUND + rnd, side="right")) - 1
        share = float(self._share(change, rnd))
        before = change if share == 1 else change - 1
        return int(self.view_ids[before]), int(self.view_ids[change]), share

    def time_in_views(self, rounds: Floats) -> Floats:
        """(N, V) rounds that each client spends in each view, of its first (N,) rounds."""
        spent = np.zeros((self.num_clients, len(self.views)))
        ends = np.where(self._is_last, np.inf, np.append(self.first[1:], 0))
        ends = np.minimum(ends, rounds[self.clients])
        lasts = np.maximum(ends - np.maximum(self.first, 0), 0)  # (T,)
        rising = np.minimum(lasts, self.full - self.first)  # rounds shared with the previous view
        lost = rising - rising * (rising + 1) / (2 * (self.full - self.first + 1))
        np.add.at(spent, (self.clients, self.view_ids), lasts - lost)
        np.add.at(
            spent, (self.clients, np.roll(self.view_ids, 1)), lost
        )  # none for a client's first view
        return spent

    def drift_events(self, rounds: int) -> list[DriftEvent]:
        """Drifts in the first `rounds` rounds."""
        happens = (self.full > 0) & (self.first < rounds)  # a view from the start is no drift
        events = []
        for change in np.flatnonzero(happens):
            old, new = self.view_ids[change - 1], self.view_ids[change]
            at = int(self.first[change]), int(self.clients[change])
            if self.concepts[old] != self.concepts[new]:
                events.append(DriftEvent(*at, "real"))
            if self.views[old].transform != self.views[new].transform:
                events.append(DriftEvent(*at, "virtual"))
        return sorted(events)

    @cached_property
    def concepts(self) -> Ints:
        """(V,) concept of each view."""
        return concepts_of(self.views, self.num_classes)

    @cached_property
    def _keys(self) -> Ints:
        return self.clients * LAST_ROUND + self.first

    @cached_property
    def _is_last(self) -> npt.NDArray[np.bool_]:
        return np.append(self.clients[1:] != self.clients[:-1], True)

    def _change_indices(self, rounds: Ints) -> Ints:
        """(N,) index of each client's current view change."""
        keys = np.arange(self.num_clients) * LAST_ROUND + rounds
        return np.searchsorted(self._keys, keys, side="right") - 1

    def _share(self, change: int | Ints, rnd: int | Ints) -> Floats:
        """Share of the samples in the view of a change."""
        first, full = self.first[change], self.full[change]
        share: Floats = np.minimum((rnd - first + 1) / (full - first + 1), 1.0)
        return share


def build_timeline(turns: Iterable[ViewChange], num_clients: int, num_classes: int) -> Timeline:
    """Build a timeline; clients have the identity view until their first change.

    The changes of one client must not overlap.
    """
    turns = list(turns)
    views, numbers = distinct_views([turn.view for turn in turns], num_classes)
    before = np.full(num_clients, BEFORE_START)
    clients = np.concatenate([np.arange(num_clients), *(turn.clients for turn in turns)])
    first = np.concatenate([before, *(turn.first for turn in turns)])
    full = np.concatenate([before, *(turn.full for turn in turns)])
    sizes = [num_clients, *(len(turn.clients) for turn in turns)]
    view_ids = np.repeat(np.array([0, *numbers], dtype=np.int64), sizes)
    require(
        bool(
            (first >= BEFORE_START).all() and (first <= full).all() and (first < LAST_ROUND).all()
        ),
        f"a view change must begin in a round from 0 to {LAST_ROUND - 1} and be complete then or "
        "later.",
    )
    order = np.lexsort((first, clients))
    clients, first, full, view_ids = clients[order], first[order], full[order], view_ids[order]
    overlaps = (clients[1:] == clients[:-1]) & (first[1:] <= full[:-1])
    require(
        not overlaps.any(),
        f"view changes of client {clients[1:][overlaps][:1]} overlap; a change must be complete "
        "before the next one begins.",
    )
    return Timeline(num_clients, num_classes, views, clients, first, full, view_ids)
