"""Updates that stay in the object stores of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats, Floats32, Ints
from thalweg.engine.ray.schedule import ActorCall, repeat_lost

if TYPE_CHECKING:
    from thalweg.engine.ray.trainer import RayTrainer


class RemoteDeltas:
    """A matrix (K, P) whose rows are on the nodes that computed them: `core.vectors.RemoteRows`.

    Columns are stored in shards. Each shard of a weighted sum is computed by one actor, in the same
    order as by `core.vectors.combine`, so that the driver holds (P,) numbers only. Parts that are
    lost with a node are trained again.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self,
        trainer: RayTrainer,
        calls: Sequence[ActorCall],
        shards: list[list[Any]],  # references, by task and shard
        counts: Sequence[int],  # rows of each task
        ends: tuple[int, ...],  # of the shards
        finite: npt.NDArray[np.bool_],  # (K,)
        rows: Ints | None = None,  # chosen rows of all tasks; None: all
        zero_from: int | None = None,  # columns from here on are zero
    ) -> None:
        self._trainer, self._calls, self._shards = trainer, calls, shards
        self._counts, self._ends, self._finite = counts, ends, finite
        self._rows = np.arange(sum(counts)) if rows is None else rows
        self._zero_from = ends[-1] if zero_from is None else zero_from
        self._starts = np.cumsum([0, *counts])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._rows), self._ends[-1]

    @property
    def nbytes(self) -> int:
        return 4 * len(self._rows) * self._ends[-1]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> Any:
        """Return some rows: as this class for an array of positions, else as an array."""
        if isinstance(key, np.ndarray):
            return self._select(self._rows[key])
        if isinstance(key, slice):
            return np.asarray(self._select(self._rows[key]))
        return np.asarray(self._select(self._rows[key : key + 1]))[0]

    def __iter__(self) -> Iterator[Floats32]:
        return (self[k] for k in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Fetch all rows. One task after the other, so that there is one copy in this process."""
        found = np.zeros(self.shape, dtype=np.float32)
        for task, (places, inside) in self._by_task().items():
            first = 0
            for end, shard in zip(self._ends, self._fetch(task), strict=True):
                found[places, first:end] = shard[inside]
                first = end
        found[:, self._zero_from :] = 0
        return found if dtype is None else found.astype(dtype)

    # --- core.vectors.RemoteRows ---

    def finite_rows(self) -> npt.NDArray[np.bool_]:
        return self._finite[self._rows]

    def with_zero_columns(self, first: int) -> RemoteDeltas:
        return self._select(self._rows, first)

    def combine(self, weights: Floats) -> Floats32:
        tasks = self._by_task()
        places = np.concatenate([places for places, _ in tasks.values()])
        rows = [inside for _, inside in tasks.values()]
        # The order of the sum is that of the rows.
        order = np.argsort(places, kind="stable")
        assert np.array_equal(order, np.arange(len(order))), "rows must be ordered by task"
        weights = np.asarray(weights, dtype=np.float32)

        def sum_shards() -> list[list[Any]]:
            return self._trainer.call(
                [
                    ActorCall(
                        "combine", (weights, rows, *(self._shards[task][shard] for task in tasks))
                    )
                    for shard in range(len(self._ends))
                ]
            )

        found = repeat_lost(sum_shards, self._train_again)
        total = cast(Floats32, np.concatenate([result[-1] for result in found]))
        total[self._zero_from :] = 0
        return total

    def _select(self, rows: Ints, zero_from: int | None = None) -> RemoteDeltas:
        return RemoteDeltas(
            self._trainer,
            self._calls,
            self._shards,
            self._counts,
            self._ends,
            self._finite,
            rows,
            self._zero_from if zero_from is None else zero_from,
        )

    def _by_task(self) -> dict[int, tuple[Ints, Ints]]:
        """Return for each task with chosen rows: their places in this matrix and in the task."""
        owners = np.searchsorted(self._starts, self._rows, side="right") - 1
        return {
            int(task): (
                np.flatnonzero(owners == task),
                self._rows[owners == task] - self._starts[task],
            )
            for task in np.unique(owners)
        }

    def _fetch(self, task: int) -> list[Floats32]:
        return cast(
            list[Floats32],
            repeat_lost(lambda: self._trainer.get(self._shards[task]), self._train_again),
        )

    def _train_again(self) -> None:
        """Train all tasks again after a part of the updates is lost."""
        for shards, result in zip(self._shards, self._trainer.call(self._calls), strict=True):
            shards[:] = result[:-1]
