"""The data of a run in other processes: what they receive, and how their predictions are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.types import Floats32, Ints
from thalweg.core.views import View
from thalweg.data.base import Dataset, Part, Targets
from thalweg.data.mapped import FilePart, find_file_part
from thalweg.engine.stack_tasks import PREDICT_BATCH

ARRAYS = ("x", "y", "x_test", "y_test", "index", "index_test")


class DataFacts(NamedTuple):
    """A data set without its arrays, as far as trainers need it."""

    num_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    num_codes: int
    views: tuple[View, ...]

    @classmethod
    def from_data(cls, data: Dataset) -> DataFacts:
        return cls(data.num_classes, data.mean, data.std, data.num_codes, data.views)

    def add_arrays(self, arrays: Mapping[str, Any]) -> Dataset:
        """Return the data set with its arrays by name."""
        return Dataset(name="shared", **self._asdict(), **arrays)


def list_arrays(data: Dataset) -> dict[str, npt.NDArray[Any] | FilePart]:
    """Return the arrays of a data set by name; for those in a file, their place in it."""
    present = {name: getattr(data, name) for name in ARRAYS if getattr(data, name) is not None}
    return {
        name: values if (part := find_file_part(values)) is None else part
        for name, values in present.items()
    }


class RowShares(NamedTuple):
    """Splits rows into shares for several processes, and joins their predictions."""

    num_samples: Mapping[Part, int]
    num_outputs: int
    no_targets: Targets  # (0,) or (0, D)

    @classmethod
    def from_data(cls, data: Dataset) -> RowShares:
        parts: tuple[Part, Part] = ("train", "test")
        no_targets = data.labels("train", np.empty(0, dtype=np.int64))
        return cls({part: data.num_samples(part) for part in parts}, data.num_outputs, no_targets)

    def split(self, part: Part, rows: Ints | None, num_workers: int) -> list[Ints]:
        """Split rows (None: all) into whole batches.

        Results therefore do not depend on the number of workers.
        """
        rows = np.arange(self.num_samples[part]) if rows is None else rows
        share = -(-len(rows) // (PREDICT_BATCH * 2 * max(num_workers, 1))) * PREDICT_BATCH
        return [rows[first : first + share] for first in range(0, len(rows), max(share, 1))]

    def join_predictions(
        self, num_models: int, found: Sequence[tuple[Targets, Floats32]]
    ) -> tuple[Targets, Floats32]:
        """Join predictions and losses, (M, n) each, of all shares."""
        no_targets = np.repeat(self.no_targets[None], num_models, axis=0)
        no_losses = np.empty((num_models, 0), dtype=np.float32)
        labels = [no_targets, *(labels for labels, _ in found)]
        losses = [no_losses, *(losses for _, losses in found)]
        return np.concatenate(labels, axis=1), np.concatenate(losses, axis=1)

    def join_scores(self, num_models: int, found: Sequence[Floats32]) -> Floats32:
        """Join scores (M, n, C) of all shares."""
        no_scores = np.empty((num_models, 0, self.num_outputs), dtype=np.float32)
        return np.concatenate([no_scores, *found], axis=1)
