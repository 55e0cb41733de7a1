"""Convert rows of a data set to the input of a net: gather, normalise and arrange in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thalweg.data.base import Dataset, Part, Targets

RowIndices = npt.NDArray[np.integer] | Tensor  # a tensor: of `Gather.prepare_rows`
# Changes samples before they are normalised.
SampleTransform = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


class Gather:
    """Reads samples of a data set by row. The data set itself is not copied.

    Images are stored as uint8 and converted to ``(x / 255 - mean) / std`` when they are read, with
    one multiplication and one addition per pixel. Codes of sequences become int64.
    """

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._is_image, self._is_sequence = data.is_image, data.is_sequence
        if data.is_image:
            # As large as an image: operations with a vector of three channels are slower.
            mean, std = (
                np.broadcast_to(channels, data.x.shape[1:]) for channels in (data.mean, data.std)
            )
            self._scale = torch.tensor(1 / (255 * std), dtype=torch.float32)  # (H, W, C)
            self._shift = torch.tensor(-mean / std, dtype=torch.float32)

    @property
    def device(self) -> torch.device:
        """The device of the tensors that are returned."""
        return torch.device("cpu")

    def prepare_rows(self, rows: RowIndices) -> RowIndices:
        """Return rows, of which parts are read later, where the data set is."""
        return rows

    def num_samples(self, part: Part) -> int:
        return self._data.num_samples(part)

    def get_single(
        self, part: Part, rows: RowIndices, change: SampleTransform | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return inputs (B, *input_shape), or codes (B, L), and labels (B,).

        Images are in ``channels_last`` memory.
        """
        x = self._samples(part, rows, change)
        labels = self._labels(part, rows)
        if not self._is_image:
            return x.clone(), labels  # aligned by torch: rounding may depend on the address
        x = x.float().mul_(self._scale).add_(self._shift)  # (B, H, W, C)
        return x.permute(0, 3, 1, 2), labels

    def get_stacked(
        self, part: Part, rows: RowIndices, change: SampleTransform | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return inputs (K, B, *input_shape), or codes (K, B, L), and labels (K, B) of rows (K, B).

        The batch is the innermost axis in memory, as `Net.apply_stacked` needs it.
        """
        x = self._samples(part, rows, change)
        if self._is_image:
            x = x.permute(0, 4, 2, 3, 1).contiguous().float()  # (K, C, H, W, B)
            scale, shift = self._scale[0, 0], self._shift[0, 0]  # (C,)
            x.mul_(scale.view(-1, 1, 1, 1)).add_(shift.view(-1, 1, 1, 1))
        else:
            x = x.movedim(1, -1).contiguous()  # (K, F, B)
        return x.movedim(-1, 1), self._labels(part, rows)

    @property
    def has_vectors(self) -> bool:
        """Whether samples are numbers, which `get_vectors` returns."""
        return self._is_image or self._data.x.dtype == np.float32

    def get_vectors(self, part: Part, rows: RowIndices) -> tuple[Tensor, Tensor]:
        """Return inputs (..., F), in the order of `Flatten`, and labels (...) of rows (...)."""
        x = self._samples(part, rows, None)
        if self._is_image:
            x = x.float().mul_(self._scale).add_(self._shift).movedim(-1, -3)  # (..., C, H, W)
        else:
            x = x.clone()  # aligned by torch: rounding may depend on the address
        return x.reshape(*rows.shape, -1), self._labels(part, rows)

    def _samples(self, part: Part, rows: RowIndices, change: SampleTransform | None) -> Tensor:
        assert isinstance(rows, np.ndarray)
        samples = self._data.samples(part, rows)
        x = torch.from_numpy(samples if change is None else change(samples))
        return x.long() if self._is_sequence else x

    @property
    def is_regression(self) -> bool:
        return self._data.task == "regression"

    def labels(self, part: Part, rows: npt.NDArray[np.integer]) -> Targets:
        return self._data.labels(part, rows)

    def _labels(self, part: Part, rows: RowIndices) -> Tensor:
        assert isinstance(rows, np.ndarray)
        return torch.from_numpy(self.labels(part, rows))
