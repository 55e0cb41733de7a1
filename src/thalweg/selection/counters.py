"""How a client counts the labels it has seen: over its life, lately, or in its memory.

A counter costs no more than the arriving batch and a copy of its own small state; it never keeps a
sample. What it has counted is a value, so that one counter serves all clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.capabilities import SurveyContext
from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints

EMPTY = -1  # a place of the ring that has held no label yet


class LabelCounter(Protocol):
    """Counts labels at one client. Any object of this shape will do."""

    @property
    def span(self) -> int | None:
        """After so many more labels nothing counted so far counts; none: not known, or never."""
        ...

    def init(self, num_classes: int) -> Any:
        """What is counted before anything has arrived."""
        ...

    def count_labels(self, counter_state: Any, labels: Ints) -> Any:
        """What is counted after labels (A,) that have just arrived."""
        ...

    def histogram(self, counter_state: Any, view: SurveyContext) -> Floats:
        """(C,) how much of each class counts now."""
        ...


@dataclass(frozen=True)
class MemoryCounter:
    """What is in memory now, which is what the client will train on. Nothing is remembered."""

    @property
    def span(self) -> None:
        return None  # the memory policy alone knows how long a sample stays

    def init(self, num_classes: int) -> None:
        return None

    def count_labels(self, counter_state: None, labels: Ints) -> None:
        return None

    def histogram(self, counter_state: None, view: SurveyContext) -> Floats:
        return _bins(view.labels(view.held), view.num_classes).astype(np.float64)


@dataclass(frozen=True)
class CumulativeCounter:
    """Everything that ever arrived. Does not follow drift, nor what a bounded memory still holds.

    >>> counter = CumulativeCounter()
    >>> counter.count_labels(counter.init(3), np.array([0, 2, 2])).tolist()
    [1, 0, 2]
    """

    @property
    def span(self) -> None:
        return None

    def init(self, num_classes: int) -> Ints:
        return np.zeros(num_classes, dtype=np.int64)

    def count_labels(self, counter_state: Ints, labels: Ints) -> Ints:
        return counter_state + _bins(labels, len(counter_state))

    def histogram(self, counter_state: Ints, view: SurveyContext) -> Floats:
        return counter_state.astype(np.float64)


class LabelRing(NamedTuple):
    """The last labels, and how many there are of each class."""

    labels: npt.NDArray[np.int32]  # (size,) NOTHING where none has been yet
    next_slot: int  # the place that is overwritten next
    counts: Ints  # (C,)


@dataclass(frozen=True)
class WindowCounter:
    """The last `size` labels that arrived.

    The histogram changes by what comes and what leaves; besides, the ring is copied, 4 bytes per label.

    >>> counter = WindowCounter(size=3)
    >>> counter.count_labels(counter.init(2), np.array([0, 0, 1, 1])).counts.tolist()
    [1, 2]
    """

    size: int = 1000

    def __post_init__(self) -> None:
        require(self.size >= 1, f"size must be at least 1 label, got {self.size}.")

    @property
    def span(self) -> int:
        return self.size

    def init(self, num_classes: int) -> LabelRing:
        empty = np.full(self.size, EMPTY, dtype=np.int32)
        return LabelRing(empty, 0, np.zeros(num_classes, dtype=np.int64))

    def count_labels(self, counter_state: LabelRing, labels: Ints) -> LabelRing:
        new = labels[-self.size :]
        places = (counter_state.next_slot + np.arange(len(new))) % self.size
        leaving = counter_state.labels[places]
        ring = counter_state.labels.copy()
        ring[places] = new
        num_classes = len(counter_state.counts)
        change = _bins(new, num_classes) - _bins(leaving[leaving != EMPTY], num_classes)
        return LabelRing(
            ring, (counter_state.next_slot + len(new)) % self.size, counter_state.counts + change
        )

    def histogram(self, counter_state: LabelRing, view: SurveyContext) -> Floats:
        return counter_state.counts.astype(np.float64)


@dataclass(frozen=True)
class DecayCounter:
    r"""Everything, but older batches count less: :math:`c \leftarrow \rho\, c + \text{new}`.

    Once per arriving batch, not per sample: the weight of a sample depends on its age in batches alone, not
    on how much came after it, and one sample more or less does not change the weights of the others. A
    tick in which nothing arrives ages nothing.

    Symbols, here
        :math:`\rho`  -> rate; 1 is `CumulativeCounter`

    >>> counter = DecayCounter(rate=0.5)
    >>> once = counter.count_labels(counter.init(2), np.array([0, 0]))
    >>> counter.count_labels(once, np.array([1])).tolist()
    [1.0, 1.0]
    """

    rate: float = 0.9

    def __post_init__(self) -> None:
        check_ranges(self, rate="(0, 1]")

    @property
    def span(self) -> None:
        return None

    def init(self, num_classes: int) -> Floats:
        return np.zeros(num_classes)

    def count_labels(self, counter_state: Floats, labels: Ints) -> Floats:
        return (
            self.rate * counter_state + _bins(labels, len(counter_state))
            if len(labels)
            else counter_state
        )

    def histogram(self, counter_state: Floats, view: SurveyContext) -> Floats:
        return counter_state


def _bins(labels: npt.NDArray[np.integer[Any]], num_classes: int) -> Ints:
    return np.bincount(labels, minlength=num_classes)


COUNTERS = {
    "memory": MemoryCounter,
    "cumulative": CumulativeCounter,
    "decay": DecayCounter,
    "window": WindowCounter,
}
