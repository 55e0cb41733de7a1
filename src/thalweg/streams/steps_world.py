"""The world built by `Steps`: shards and views per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from thalweg.core.rng import Draw, rng_for
from thalweg.core.transforms import Transform
from thalweg.core.types import Arrival, Floats, Ints, Supplies, Supply
from thalweg.core.views import View, concepts_of
from thalweg.streams.base import DriftEvent, Setting, StateTable

if TYPE_CHECKING:
    from thalweg.streams.steps import Steps


@dataclass(frozen=True, eq=False)
class StepsWorld:
    """Shards, and tables of T steps for N clients."""

    spec: Steps
    setting: Setting
    shards: tuple[Ints, ...]  # N arrays of rows, disjoint
    shard_ids: Ints  # (T, N) shard that arrives at each client in each step
    view_ids: Ints  # (T, N) view of that shard
    views: tuple[View, ...]

    @property
    def num_clients(self) -> int:
        return self.spec.num_clients

    @property
    def num_steps(self) -> int:
        return len(self.shard_ids)

    @property
    def ticks(self) -> int:
        return self.setting.ticks

    @property
    def collects_when_absent(self) -> bool:
        return True

    @property
    def has_clients_of_data(self) -> bool:
        return False

    @property
    def availability(self) -> Floats:
        """All clients are always present; the selection chooses the participants."""
        return np.ones(self.num_clients)

    # --- views ---

    def step_at(self, rnd: int | Ints) -> Ints:
        """Step of one round or of several rounds; the last step after the run."""
        steps: Ints = np.minimum(np.asarray(rnd) // self.spec.rounds_per_step, self.num_steps - 1)
        return steps

    def views_at(self, rnd: int | Ints) -> Ints:
        views: Ints = self.view_ids[self.step_at(rnd), np.arange(self.num_clients)]
        return views

    def concepts_at(self, rnd: int | Ints) -> Ints:
        return self._concepts[self.views_at(rnd)]

    def drift_events(self) -> list[DriftEvent]:
        """Label drift occurs with every new shard if shards have their own label mixes."""
        angles: dict[Transform, int] = {}
        angle = np.array([angles.setdefault(view.transform, len(angles)) for view in self.views])
        events = []
        for step in range(1, self.num_steps):
            rnd, (old, new) = step * self.spec.rounds_per_step, self.view_ids[step - 1 : step + 1]
            changes: dict[Literal["real", "virtual", "label"], npt.NDArray[np.bool_]] = {
                "real": self._concepts[old] != self._concepts[new],
                "virtual": angle[old] != angle[new],
            }
            if self.spec.dirichlet is not None:
                changes["label"] = self.shard_ids[step] != self.shard_ids[step - 1]
            for kind, has_changed in changes.items():
                clients = np.flatnonzero(has_changed).tolist()
                events += [DriftEvent(rnd, client, kind) for client in clients]
        return sorted(events)

    # --- arrivals ---

    def present(self, rnd: int) -> Ints:
        return np.arange(self.num_clients)

    def true_state_probs(self, client: int) -> Floats:
        return np.ones(1)

    def capacity(self, client: int) -> int:
        return self.spec.memory_shards * int(self._num_arriving.max())

    def supply(self, client: int) -> Supply:
        total = self._num_arriving[self.shard_ids[:, client]].sum()
        return Supply(float(total), False, float(self.setting.rounds))

    def supplies(self) -> Supplies:
        total = self._num_arriving[self.shard_ids].sum(axis=0).astype(np.float64)
        rounds = np.full(self.num_clients, float(self.setting.rounds))
        return Supplies(total, np.zeros(self.num_clients, dtype=np.bool_), rounds)

    def begin(self, client: int) -> tuple[None, Arrival]:
        """A client starts without samples."""
        return None, _empty_arrival()

    def emit(self, state: None, client: int, stream_round: int) -> tuple[None, list[Arrival]]:
        """A shard, or a part of it, in the first tick of a step."""
        step, since = divmod(stream_round, self.spec.rounds_per_step)
        arrivals = [_empty_arrival() for _ in range(self.ticks)]
        if since == 0 and step < self.num_steps:
            n = len(self.setting.labels)
            rows = self._draw_arriving(step, client) + n * self.view_ids[step, client]
            arrivals[0] = Arrival(rows, 0)
        return None, arrivals

    def _draw_arriving(self, step: int, client: int) -> Ints:
        """Return the samples of its shard that a client receives in a step."""
        shard_id = int(self.shard_ids[step, client])
        shard, number = self.shards[shard_id], int(self._num_arriving[shard_id])
        if number == len(shard):
            return shard
        rng = rng_for(self.setting.seed, Draw.STREAM, rnd=step, client=client)
        drawn: Ints = rng.permutation(shard)[:number]
        return drawn

    @cached_property
    def mixes(self) -> Floats:
        mixes: Floats = self._counts / self._counts.sum(axis=1, keepdims=True)
        return mixes

    @cached_property
    def state_table(self) -> StateTable:
        """One state: the class distribution of all data of the clients, in their views."""
        counts = self._counts.sum(axis=0)
        return StateTable((counts / counts.sum())[None], np.ones(1))

    @cached_property
    def _num_arriving(self) -> Ints:
        """(N,) samples of each shard that arrive at a client; at least one."""
        sizes = np.array([len(shard) for shard in self.shards])
        parts = (self.spec.train_share * sizes).astype(np.int64)
        number: Ints = np.maximum(parts, np.minimum(sizes, 1))
        return number

    @cached_property
    def _concepts(self) -> Ints:
        return concepts_of(self.views, self.setting.num_classes)

    @cached_property
    def _counts(self) -> Ints:
        """(N, C) samples of every class that each client has in the run, in its views."""
        num_classes = self.setting.num_classes
        maps = np.stack([view.label_map(num_classes) for view in self.views])  # (V, C)
        counts = np.zeros((self.num_clients, num_classes), dtype=np.int64)
        clients = np.arange(self.num_clients)[:, None]
        for step, view_ids in enumerate(self.view_ids):
            np.add.at(counts, (clients, maps[view_ids]), self._count_arriving(step))
        return counts

    def _count_arriving(self, step: int) -> Ints:
        """Return (N, C) samples of each original class that the clients receive in a step."""
        if self.spec.train_share == 1:
            whole: Ints = self._shard_counts[self.shard_ids[step]]
            return whole
        arriving = [self._draw_arriving(step, client) for client in range(self.num_clients)]
        return self._count_classes(arriving)

    @cached_property
    def _shard_counts(self) -> Ints:
        return self._count_classes(self.shards)

    def _count_classes(self, parts: Sequence[Ints]) -> Ints:
        """Return (parts, C) samples of each original class in some arrays of rows."""
        labels, num_classes = self.setting.labels, self.setting.num_classes
        return np.stack([np.bincount(labels[rows], minlength=num_classes) for rows in parts])


def _empty_arrival() -> Arrival:
    return Arrival(np.empty(0, dtype=np.int64), 0)
