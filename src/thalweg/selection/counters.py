"""Label counters: how a client counts the labels of its samples.

A counter can cover everything that arrived, recent arrivals, or the current memory. Its state is a
small value per client; it never stores samples, and one counter object serves all clients.
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

EMPTY = -1  # a slot of the ring that has not been filled yet


class LabelCounter(Protocol):
    """Counts the labels at one client. Implement the methods; no base class is needed."""

    @property
    def span(self) -> int | None:
        """Number of further labels after which nothing counted so far counts; None: not known."""
        ...

    def init(self, num_classes: int) -> Any:
        """Return the state before any label has arrived."""
        ...

    def count_labels(self, counter_state: Any, labels: Ints) -> Any:
        """Return the state after labels (A,) have arrived."""
        ...

    def histogram(self, counter_state: Any, context: SurveyContext) -> Floats:
        """Return (C,) the current count of each class."""
        ...


@dataclass(frozen=True)
class MemoryCounter:
    """Count the labels in memory, which the client will train on. Needs no state.

    >>> from types import SimpleNamespace
    >>> labels = np.array([0, 2, 2])
    >>> context = SimpleNamespace(held=np.arange(3), labels=labels.take, num_classes=3)
    >>> MemoryCounter().histogram(None, context).tolist()
    [1.0, 0.0, 2.0]
    """

    @property
    def span(self) -> None:
        return None  # depends on the memory policy

    def init(self, num_classes: int) -> None:
        return None

    def count_labels(self, counter_state: None, labels: Ints) -> None:
        return None

    def histogram(self, counter_state: None, context: SurveyContext) -> Floats:
        return _bins(context.labels(context.held), context.num_classes).astype(np.float64)


@dataclass(frozen=True)
class CumulativeCounter:
    """Count all labels that ever arrived.

    This is the counter of the DPCS paper. It follows neither drift nor the content of a bounded
    memory.

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

    def histogram(self, counter_state: Ints, context: SurveyContext) -> Floats:
        return counter_state.astype(np.float64)


class LabelRing(NamedTuple):
    """The last labels, and the number of them in each class."""

    labels: npt.NDArray[np.int32]  # (size,) EMPTY in slots not filled yet
    next_slot: int  # the slot that is overwritten next
    counts: Ints  # (C,)


@dataclass(frozen=True)
class WindowCounter:
    """Count the last `size` labels that arrived.

    The counts are updated by the labels that enter and leave the window. Each update copies the
    window, 4 bytes per label.

    >>> counter = WindowCounter(size=3)
    >>> counter.count_labels(counter.init(2), np.array([0, 0, 1, 1])).counts.tolist()
    [1, 2]
    """

    size: int = 1000

    def __post_init__(self) -> None:
        require(self.size >= 1, f"size must be at least 1 label, got {self.size}.")
        check_ranges(self, size="[1, inf)")

    @property
    def span(self) -> int:
        return self.size

    def init(self, num_classes: int) -> LabelRing:
        empty = np.full(self.size, EMPTY, dtype=np.int32)
        return LabelRing(empty, 0, np.zeros(num_classes, dtype=np.int64))

    def count_labels(self, counter_state: LabelRing, labels: Ints) -> LabelRing:
        new = labels[-self.size :]
        slots = (counter_state.next_slot + np.arange(len(new))) % self.size
        leaving = counter_state.labels[slots]
        ring = counter_state.labels.copy()
        ring[slots] = new
        num_classes = len(counter_state.counts)
        change = _bins(new, num_classes) - _bins(leaving[leaving != EMPTY], num_classes)
        return LabelRing(
            ring, (counter_state.next_slot + len(new)) % self.size, counter_state.counts + change
        )

    def histogram(self, counter_state: LabelRing, context: SurveyContext) -> Floats:
        return counter_state.counts.astype(np.float64)


@dataclass(frozen=True)
class DecayCounter:
    r"""Count all labels, with exponentially smaller weights for older batches.

    .. math::  c \leftarrow \rho\, c + \text{new}

    The decay is per arriving batch, not per sample: the weight of a sample depends only on its age
    in batches, and one sample more or less does not change the weights of the others. A tick
    without arrivals changes nothing.

    Symbols -> here
        :math:`\rho`  -> rate; 1 is `CumulativeCounter`

    Two labels of class 0, then one of class 1: 0.5 * 2 = 1 and 1.

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

    def histogram(self, counter_state: Floats, context: SurveyContext) -> Floats:
        return counter_state


def _bins(labels: npt.NDArray[np.integer[Any]], num_classes: int) -> Ints:
    """Return (C,) the number of labels of each class."""
    return np.bincount(labels, minlength=num_classes)


COUNTERS = {
    "memory": MemoryCounter,
    "cumulative": CumulativeCounter,
    "decay": DecayCounter,
    "window": WindowCounter,
}
