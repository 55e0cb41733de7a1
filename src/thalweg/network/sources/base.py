"""The protocol of a live source: samples, late labels, and positions for resuming."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.core.types import Floats

PENDING_LABEL = -1
"""Class label of a sample whose label arrives later. In a regression, its numbers are nan."""

Samples = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.float32]
Targets = npt.NDArray[Any]  # class labels, int64 (B,), or numbers, float32 (B,) or (B, D)


class LiveBatch(NamedTuple):
    """Samples in order of arrival; an empty batch (B = 0) is a heartbeat."""

    inputs: Samples  # (B, *shape)
    labels: Targets  # classes 0 .. num_classes - 1 or PENDING_LABEL; regression: numbers or nan
    times: Floats  # (B,) unix seconds
    keys: tuple[str, ...]  # (B,) names of samples, for late labels and duplicates; "": none
    cursor: str  # position after this batch as JSON; "": the source cannot resume


class LateLabels(NamedTuple):
    """Labels of earlier samples, by the samples' keys."""

    keys: tuple[str, ...]
    labels: Targets
    cursor: str


Event = LiveBatch | LateLabels


@runtime_checkable
class Source(Protocol):
    """Protocol of a source of samples.

    One thread reads `events`; `confirm`, `close` and the properties may be used from another.
    """

    @property
    def can_wait(self) -> bool:
        """True if the source waits for a slow reader; otherwise unread samples are lost."""
        ...

    @property
    def rejected(self) -> int:
        """Number of invalid records so far; they are skipped."""
        ...

    @property
    def last_rejection(self) -> str:
        """Reason for the last rejection; empty if there was none."""
        ...

    @property
    def trouble(self) -> str:
        """Description of the current problem in one line; empty if there is none."""
        ...

    def events(self, cursor: str) -> Iterator[Event]:
        """All events after a cursor; after the empty cursor, from the beginning or from now on.

        Blocks, but yields an empty `LiveBatch` at least every few seconds, so that its reader can
        stop. Ends when no more samples can arrive, or after `close`. Invalid records are never
        fatal; a permanent read error is a `DataError`.
        """
        ...

    def confirm(self, cursor: str) -> None:
        """Confirm that everything up to this cursor is stored; a broker may discard it."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class SampleFormat:
    """Required format of every sample of a source."""

    shape: tuple[int, ...]  # of one stored sample: (H, W, C), (F,) or (L,)
    dtype: Literal["uint8", "uint16", "float32"]  # images or codes, codes, features
    num_classes: int  # 0: regression
    classes: tuple[str, ...] | None = None  # class names
    columns: tuple[str, ...] | None = None  # names of the F features
    num_codes: int = 0  # of sequences: codes are 0 .. num_codes - 1
    centre: tuple[float, ...] = ()  # of features: a value becomes (x - centre) / width
    width: tuple[float, ...] = ()
    target_shape: tuple[int, ...] = ()  # regression: () for one number per sample, (D,) for D

    def __post_init__(self) -> None:
        require(
            self.dtype in ("uint8", "uint16", "float32"),
            f"dtype must be uint8, uint16 or float32, got {self.dtype!r}.",
        )
        require(
            bool(self.shape) and min(self.shape) > 0,
            f"shape must have positive sizes, got {self.shape}.",
        )
        require(
            self.num_classes >= 0,
            f"num_classes must be at least 1, or 0 for a regression, got {self.num_classes}.",
        )
        require(
            not self.target_shape or (self.num_classes == 0 and len(self.target_shape) == 1),
            "target_shape must be () or (D,), and () for classes, got "
            f"{self.target_shape} for num_classes={self.num_classes}.",
        )
        require(
            min(self.target_shape, default=1) > 0,
            f"target_shape must have a positive size, got {self.target_shape}.",
        )
        require(
            not self.classes or len(self.classes) == self.num_classes,
            f"{len(self.classes or ())} class names for {self.num_classes} classes.",
        )
        require(
            not self.columns or len(self.columns) == self.size,
            f"{len(self.columns or ())} column names ({', '.join(self.columns or ())}) for samples "
            f"of {self.size} numbers.",
        )

        is_scaled = bool(self.centre or self.width)
        require(
            not is_scaled
            or (self.dtype == "float32" and len(self.centre) == len(self.width) == self.size),
            f"a scale needs a centre and a width for each of {self.size} float32 features, got "
            f"{len(self.centre)} and {len(self.width)} for {self.dtype}.",
        )
        require(
            all(map(math.isfinite, self.centre)) and all(0 < w < math.inf for w in self.width),
            "centres must be finite, widths positive.",
        )

    @property
    def size(self) -> int:
        """Number of values in a sample."""
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def is_regression(self) -> bool:
        return self.num_classes == 0

    @property
    def num_targets(self) -> int:
        """Number of numbers to predict per sample; 1 for a class."""
        return math.prod(self.target_shape)

    @property
    def pending(self) -> Targets:
        """The target of a sample whose target arrives later."""
        if self.is_regression:
            return np.full(self.target_shape, np.nan, dtype=np.float32)
        return np.array(PENDING_LABEL)

    def empty_targets(self, number: int = 0) -> Targets:
        """An uninitialised array for the targets of some samples."""
        dtype: type[np.generic] = np.float32 if self.is_regression else np.int64
        return np.empty((number, *self.target_shape), dtype=dtype)

    def empty(self, number: int = 0) -> npt.NDArray[Any]:
        """An uninitialised array for some samples."""
        return np.empty((number, *self.shape), dtype=self.dtype)


def empty_batch(sample_format: SampleFormat, cursor: str) -> LiveBatch:
    """An empty batch with the current position of the source."""
    nothing = sample_format.empty(), sample_format.empty_targets(), np.empty(0)
    return LiveBatch(*nothing, (), cursor)


def find_pending(labels: Targets) -> npt.NDArray[np.bool_]:
    """(B,) whether the target of each sample arrives later.

    >>> find_pending(np.array([2, -1])).tolist()
    [False, True]
    >>> find_pending(np.array([[0.5, 2.0], [np.nan, np.nan]])).tolist()
    [False, True]
    """
    if labels.dtype.kind != "f":
        return np.asarray(labels == PENDING_LABEL)
    return np.asarray(np.isnan(labels).all(axis=tuple(range(1, labels.ndim))))
