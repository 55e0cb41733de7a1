"""What a data set is to the rest of the project: arrays, nothing lazy, nothing copied."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import DataError
from thalweg.core.types import Floats, Ints


@dataclass(frozen=True, eq=False)
class Dataset:
    """One store of samples. Streams and memories hold rows of it, never the samples themselves.

    Images are uint8 with the channels last, (n, H, W, C), and are turned into
    ``(x / 255 - mean) / std`` when a batch is gathered; features are float32, (n, F), used as they
    are.
    """

    name: str
    x: npt.NDArray[np.uint8] | npt.NDArray[np.float32]  # (n, H, W, C) or (n, F)
    y: Ints  # (n,) labels 0 .. num_classes - 1
    x_test: npt.NDArray[np.uint8] | npt.NDArray[np.float32]
    y_test: Ints
    num_classes: int
    mean: tuple[float, ...] = ()  # per channel; images only
    std: tuple[float, ...] = ()
    group: Ints | None = None  # (n,) the client a training sample belongs to, 0 .. groups - 1
    time: Floats | None = None  # (n,) when a training sample arrived
    class_names: tuple[str, ...] = ()  # num_classes names, or none
    group_names: tuple[str, ...] = ()  # one name per group, or none

    def __post_init__(self) -> None:
        if len(self.x) == 0:
            raise DataError(f"{self.name}: the training part has no samples.")
        for x, y, part in ((self.x, self.y, "train"), (self.x_test, self.y_test, "test")):
            if len(x) != len(y):
                raise DataError(f"{self.name}: {len(x)} samples but {len(y)} labels in {part}.")
            if len(y) and not (y.min() >= 0 and y.max() < self.num_classes):
                raise DataError(
                    f"{self.name}: labels in {part} run from {y.min()} to {y.max()}, "
                    f"expected 0 to {self.num_classes - 1}."
                )
        for column, part in ((self.group, "group"), (self.time, "time")):
            if column is not None and len(column) != len(self.y):
                raise DataError(
                    f"{self.name}: {len(self.y)} training samples but {len(column)} entries "
                    f"in {part}; expected one for each."
                )
        if self.group is not None and self.group.min() < 0:
            raise DataError(f"{self.name}: groups count from 0, got {self.group.min()}.")
        if self.time is not None and not np.isfinite(self.time).all():
            raise DataError(f"{self.name}: time must be finite numbers.")
        if self.class_names and len(self.class_names) != self.num_classes:
            raise DataError(
                f"{self.name}: {len(self.class_names)} class names for {self.num_classes} classes."
            )

    @property
    def is_image(self) -> bool:
        return self.x.ndim == 4

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample as a net sees it: (C, H, W) or (F,)."""
        if self.is_image:
            height, width, channels = self.x.shape[1:]
            return (channels, height, width)
        return tuple(self.x.shape[1:])


class DataSource(Protocol):
    """Anything that can produce a data set: a frozen dataclass, so that it is configuration too."""

    def load(self, data_dir: Path | None, seed: int) -> Dataset:
        """Read or draw the data set, whole or not at all.

        `data_dir` is where the user says the files are; None: the usual places. `seed` is the
        run's: it changes what is drawn (synthetic data), never what is read or how it is split.
        """
        ...


@runtime_checkable
class Locatable(Protocol):
    """A source that can tell quickly whether its data are here."""

    def locate(self, data_dir: Path | None) -> object:
        """Find the files, or fetch them; `DataError` with the ways to get them if neither works."""
        ...


def make_sure_of(source: DataSource, data_dir: Path | None, seed: int) -> None:
    """Raise `DataError` if a data set cannot be had; as cheaply as its source allows."""
    if isinstance(source, Locatable):
        source.locate(data_dir)
    else:
        source.load(data_dir, seed)
