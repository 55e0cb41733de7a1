"""A data set that is stored on a device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from thalweg.data.base import Dataset, Part
from thalweg.engine.devices import find_free_memory
from thalweg.engine.gather import Gather, RowIndices, SampleTransform

PARTS: tuple[Part, Part] = ("train", "test")


class StoredPart(NamedTuple):
    """The samples of a part in all T transforms of its views, and the labels of all V views."""

    x: Tensor  # (T * n, ...) of the type of the data set
    labels: Tensor  # (V * n,) or (V * n, D)
    transforms: Tensor | None  # (V,) the transform of each view; None: there are no views
    num_samples: int  # n


class DeviceGather(Gather):
    """Reads samples by row from the memory of a device.

    The data set is copied once, if it needs at most half of the free memory. A larger one stays in
    this process, and so do samples before their augmentation: then each batch is copied.
    """

    def __init__(self, data: Dataset, device: torch.device) -> None:
        super().__init__(data)
        self._device = device
        if self._is_image:
            self._scale, self._shift = self._scale.to(device), self._shift.to(device)
        free = find_free_memory(device)
        fits = free is None or sum(_count_bytes(data, part) for part in PARTS) <= free // 2
        self._stored = {part: _store(data, part, device) for part in PARTS} if fits else {}

    @property
    def device(self) -> torch.device:
        return self._device

    def prepare_rows(self, rows: RowIndices) -> RowIndices:
        if isinstance(rows, Tensor) or not self._stored:
            return rows
        return torch.tensor(rows, device=self._device).long()

    def _samples(self, part: Part, rows: RowIndices, change: SampleTransform | None) -> Tensor:
        stored = self._stored.get(part)
        if stored is None or change is not None:
            return super()._samples(part, rows, change).to(self._device)
        places = self.prepare_rows(rows)
        assert isinstance(places, Tensor)
        if stored.transforms is not None:
            views = places.div(stored.num_samples, rounding_mode="floor")
            places = stored.transforms[views] * stored.num_samples + places % stored.num_samples
        x = stored.x[places]
        return x.long() if self._is_sequence else x

    def _labels(self, part: Part, rows: RowIndices) -> Tensor:
        if part in self._stored:
            places = self.prepare_rows(rows)
            assert isinstance(places, Tensor)
            return self._stored[part].labels[places]
        return super()._labels(part, rows).to(self._device)


def _store(data: Dataset, part: Part, device: torch.device) -> StoredPart:
    """Copy a part to a device, once for each different transform of its views."""
    n = data.num_samples(part)
    first_views = _find_first_views(data)
    rows = [view * n + np.arange(n) for view in first_views.values()]
    x = data.samples(part, np.concatenate(rows))
    if x.dtype == np.uint16:  # torch cannot index it
        x = x.astype(np.int32)
    numbers = {transform: number for number, transform in enumerate(first_views)}
    transforms = [numbers[view.transform] for view in data.views]
    return StoredPart(
        x=torch.from_numpy(x).to(device),
        labels=torch.tensor(data.all_labels(part), device=device),
        transforms=torch.tensor(transforms, device=device) if transforms else None,
        num_samples=n,
    )


def _find_first_views(data: Dataset) -> dict[object, int]:
    """Return the first view with each different transform; without views, view 0."""
    found: dict[object, int] = {}
    for number, view in enumerate(data.views):
        found.setdefault(view.transform, number)
    return found or {None: 0}


def _count_bytes(data: Dataset, part: Part) -> int:
    x = data.x if part == "train" else data.x_test
    each = int(np.prod(x.shape[1:])) * max(x.itemsize, 4 if x.dtype == np.uint16 else 1)
    labels = data.all_labels(part)
    return len(_find_first_views(data)) * data.num_samples(part) * each + labels.nbytes
