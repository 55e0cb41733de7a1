"""What a live source is: samples as they come, labels that come later, and where to go on after a stop."""

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
"""The label of a sample whose label comes later."""

Samples = npt.NDArray[np.uint8] | npt.NDArray[np.uint16] | npt.NDArray[np.float32]


class LiveBatch(NamedTuple):
    """Samples that have come, in order; B may be 0, which only says that the source is still alive."""

    inputs: Samples  # (B, *shape)
    labels: Ints  # (B,) 0 .. num_classes - 1, or LATER
    times: Floats  # (B,) unix seconds
    keys: tuple[str, ...]  # (B,) names of samples, for late labels and second deliveries; "": none
    cursor: str  # where to go on after this batch, a little JSON; "": the source cannot


class LateLabels(NamedTuple):
    """Labels of samples that came before, by the samples' keys."""

    keys: tuple[str, ...]
    labels: Ints
    cursor: str


Event = LiveBatch | LateLabels


@runtime_checkable
class Source(Protocol):
    """Where a device's samples come from.

    One thread reads `events`; `confirm`, `close` and the numbers may be used from another.
    """

    @property
    def can_wait(self) -> bool:
        """Does it wait for a reader that is slow? If not, whatever is not read in time is lost."""
        ...

    @property
    def rejected(self) -> int:
        """Records so far that were no samples of this form; they are skipped."""
        ...

    @property
    def last_rejection(self) -> str:
        """Why the last of them was refused; empty if none was."""
        ...

    @property
    def trouble(self) -> str:
        """What keeps it from delivering at the moment, in a line; empty if all is well."""
        ...

    def events(self, cursor: str) -> Iterator[Event]:
        """Everything after a cursor; from the beginning, or from now on, after the empty one.

        Blocks, but yields an empty `LiveBatch` at least every few seconds, so that its reader can stop. Ends when
        nothing can ever come any more, or after `close`. A record that is refused is never fatal; what makes
        reading impossible for good is a `DataError`.
        """
        ...

    def confirm(self, cursor: str) -> None:
        """Everything up to this cursor is stored: a broker may forget it now."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class SampleFormat:
    """What every sample of a source has to look like."""

    shape: tuple[int, ...]  # of one stored sample: (H, W, C), (F,) or (L,)
    dtype: Literal["uint8", "uint16", "float32"]  # images or codes, codes, features
    num_classes: int
    classes: tuple[str, ...] | None = None  # names of the classes
    columns: tuple[str, ...] | None = None  # names of the F features
    num_codes: int = 0  # of sequences: codes are 0 .. num_codes - 1
    centre: tuple[float, ...] = ()  # of features: a reading becomes (x - centre) / width
    width: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require(
            self.dtype in ("uint8", "uint16", "float32"),
            f"samples are uint8, uint16 or float32, got {self.dtype!r}.",
        )
        require(
            bool(self.shape) and min(self.shape) > 0,
            f"a sample has a shape of positive sizes, got {self.shape}.",
        )
        require(self.num_classes > 0, f"expected at least one class, got {self.num_classes}.")
        require(
            not self.classes or len(self.classes) == self.num_classes,
            f"{len(self.classes or ())} class names for {self.num_classes} classes.",
        )
        require(
            not self.columns or len(self.columns) == self.size,
            f"{len(self.columns or ())} names of columns ({', '.join(self.columns or ())}) for samples of "
            f"{self.size} numbers.",
        )

        is_scaled = bool(self.centre or self.width)
        require(
            not is_scaled
            or (self.dtype == "float32" and len(self.centre) == len(self.width) == self.size),
            f"a scale has a centre and a width for each of {self.size} features, got {len(self.centre)} and "
            f"{len(self.width)} for {self.dtype}.",
        )
        require(
            all(map(math.isfinite, self.centre)) and all(0 < w < math.inf for w in self.width),
            "centres must be finite, widths positive.",
        )

    @property
    def size(self) -> int:
        """Numbers in a sample."""
        return math.prod(self.shape)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    def empty(self, number: int = 0) -> npt.NDArray[Any]:
        """Room for some samples."""
        return np.empty((number, *self.shape), dtype=self.dtype)


def empty_batch(sample_format: SampleFormat, cursor: str) -> LiveBatch:
    """An empty batch: nothing has come, and this is how far the source is."""
    return LiveBatch(sample_format.empty(), np.empty(0, np.int64), np.empty(0), (), cursor)
