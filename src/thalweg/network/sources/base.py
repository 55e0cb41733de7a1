"""The protocol of a live source: samples, late labels, and positions for resuming."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints

PENDING_LABEL = -1
"""Label of a sample whose label arrives later."""

Samples = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.float32]


class LiveBatch(NamedTuple):
    """Samples in order of arrival; an empty batch (B = 0) is a heartbeat."""

    inputs: Samples  # (B, *shape)
    labels: Ints  # (B,) 0 .. num_classes - 1, or PENDING_LABEL
    times: Floats  # (B,) unix seconds
    keys: tuple[str, ...]  # (B,) names of samples, for late labels and duplicates; "": none
    cursor: str  # position after this batch as JSON; "": the source cannot resume


class LateLabels(NamedTuple):
    """Labels of earlier samples, by the samples' keys."""

    keys: tuple[str, ...]
    labels: Ints
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
    num_classes: int
    classes: tuple[str, ...] | None = None  # class names
    columns: tuple[str, ...] | None = None  # names of the F features
    num_codes: int = 0  # of sequences: codes are 0 .. num_codes - 1
    centre: tuple[float, ...] = ()  # of features: a value becomes (x - centre) / width
    width: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require(
            self.dtype in ("uint8", "uint16", "float32"),
            f"dtype must be uint8, uint16 or float32, got {self.dtype!r}.",
        )
        require(
            bool(self.shape) and min(self.shape) > 0,
            f"shape must have positive sizes, got {self.shape}.",
        )
        require(self.num_classes > 0, f"num_classes must be at least 1, got {self.num_classes}.")
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

    def empty(self, number: int = 0) -> npt.NDArray[Any]:
        """An uninitialised array for some samples."""
        return np.empty((number, *self.shape), dtype=self.dtype)


def empty_batch(sample_format: SampleFormat, cursor: str) -> LiveBatch:
    """An empty batch with the current position of the source."""
    return LiveBatch(sample_format.empty(), np.empty(0, np.int64), np.empty(0), (), cursor)
