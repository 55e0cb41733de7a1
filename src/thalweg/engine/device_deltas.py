"""Updates that stay on an accelerator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thalweg.core.tensors import get_wide_dtype
from thalweg.core.types import Floats, Floats32


class DeviceDeltas:
    """A matrix (K, P) whose rows are tensors on a device: `core.vectors.RemoteRows`.

    A weighted sum is computed there, in the order of `core.vectors.combine`, and only the sum (P,)
    is copied back.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, rows: Sequence[Tensor], num_params: int, zero_from: int | None = None):
        self._rows, self._num_params = list(rows), num_params
        self._zero_from = num_params if zero_from is None else zero_from  # columns from here on

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._rows), self._num_params

    @property
    def nbytes(self) -> int:
        return 4 * len(self._rows) * self._num_params

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Any) -> Any:
        """Return some rows: as this class for an array of positions, else as an array."""
        if isinstance(key, np.ndarray):
            places = np.arange(len(self))[key].tolist()
            return DeviceDeltas([self._rows[k] for k in places], self._num_params, self._zero_from)
        if isinstance(key, slice):
            return np.asarray(DeviceDeltas(self._rows[key], self._num_params, self._zero_from))
        return self._fetch(self._rows[key])

    def __iter__(self) -> Iterator[Floats32]:
        return (self._fetch(row) for row in self._rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Fetch all rows, one after the other, so that the device needs no further memory."""
        found = np.empty(self.shape, dtype=np.float32)
        for k, row in enumerate(self):
            found[k] = row
        return found if dtype is None else found.astype(dtype)

    def _fetch(self, row: Tensor) -> Floats32:
        found = np.array(row.cpu().numpy())
        found[self._zero_from :] = 0
        return found

    # --- core.vectors.RemoteRows ---

    def finite_rows(self) -> npt.NDArray[np.bool_]:
        if not self._rows:
            return np.empty(0, dtype=np.bool_)
        found: npt.NDArray[np.bool_] = (
            torch.stack([row.isfinite().all() for row in self._rows]).cpu().numpy()
        )
        return found

    def with_zero_columns(self, first: int) -> DeviceDeltas:
        return DeviceDeltas(self._rows, self._num_params, first)

    def combine(self, weights: Floats) -> Floats32:
        if not self._rows:
            return np.zeros(self._num_params, dtype=np.float32)
        device = self._rows[0].device
        total = torch.zeros(self._num_params, dtype=get_wide_dtype(device), device=device)
        factors = np.asarray(weights, dtype=np.float32).tolist()
        for factor, row in zip(factors, self._rows, strict=True):
            total.add_(row, alpha=factor)
        return self._fetch(total.float())
