"""How a client counts the labels it has seen: over its life, lately, or in its memory.

A counter costs no more than the arriving batch and a copy of its own small state; it never keeps a
sample. What it has counted is a value, so that one counter serves all clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.core.config import check_ranges
from thalweg.core.errors import require
from thalweg.core.talk import View
from thalweg.core.types import Floats, Ints

NOTHING = -1  # a place of the ring that has held no label yet


class Counter(Protocol):
    """Counts labels at one client. Any object of this shape will do."""

    @property
    def span(self) -> int | None:
        """After so many more labels nothing counted so far counts; none: not known, or never."""
        ...

    def begin(self, num_classes: int) -> Any:
        """What is counted before anything has arrived."""
        ...

    def count(self, counted: Any, labels: Ints) -> Any:
        """What is counted after labels (A,) that have just arrived."""
        ...

    def histogram(self, counted: Any, view: View) -> Floats:
        """(C,) how much of each class counts now."""
        ...


@dataclass(frozen=True)
class Cache:
    """What is in memory now, which is what the client will train on. Nothing is remembered."""

    @property
    def span(self) -> None:
        return None  # the memory policy alone knows how long a sample stays

    def begin(self, num_classes: int) -> None:
        return None

    def count(self, counted: None, labels: Ints) -> None:
        return None

    def histogram(self, counted: None, view: View) -> Floats:
        return _bins(view.labels(view.held), view.num_classes).astype(np.float64)


@dataclass(frozen=True)
class Cumulative:
    """Everything that ever arrived. Does not follow drift, nor what a bounded memory still holds.

    >>> counter = Cumulative()
    >>> counter.count(counter.begin(3), np.array([0, 2, 2])).tolist()
    [1, 0, 2]
    """

    @property
    def span(self) -> None:
        return None

    def begin(self, num_classes: int) -> Ints:
        return np.zeros(num_classes, dtype=np.int64)

    def count(self, counted: Ints, labels: Ints) -> Ints:
        return counted + _bins(labels, len(counted))

    def histogram(self, counted: Ints, view: View) -> Floats:
        return counted.astype(np.float64)


class Ring(NamedTuple):
    """The last labels, and how many there are of each class."""

    labels: npt.NDArray[np.int32]  # (size,) NOTHING where none has been yet
    at: int  # the place that is overwritten next
    counts: Ints  # (C,)


@dataclass(frozen=True)
class Window:
    """The last `size` labels that arrived.

    The histogram changes by what comes and what leaves; besides, the ring is copied, 4 bytes per label.

    >>> counter = Window(size=3)
    >>> counter.count(counter.begin(2), np.array([0, 0, 1, 1])).counts.tolist()
    [1, 2]
    """

    size: int = 1000

    def __post_init__(self) -> None:
        require(self.size >= 1, f"size must be at least 1 label, got {self.size}.")

    @property
    def span(self) -> int:
        return self.size

    def begin(self, num_classes: int) -> Ring:
        empty = np.full(self.size, NOTHING, dtype=np.int32)
        return Ring(empty, 0, np.zeros(num_classes, dtype=np.int64))

    def count(self, counted: Ring, labels: Ints) -> Ring:
        new = labels[-self.size :]
        places = (counted.at + np.arange(len(new))) % self.size
        leaving = counted.labels[places]
        ring = counted.labels.copy()
        ring[places] = new
        num_classes = len(counted.counts)
        change = _bins(new, num_classes) - _bins(leaving[leaving != NOTHING], num_classes)
        return Ring(ring, (counted.at + len(new)) % self.size, counted.counts + change)

    def histogram(self, counted: Ring, view: View) -> Floats:
        return counted.counts.astype(np.float64)


@dataclass(frozen=True)
class Decay:
    r"""Everything, but older batches count less: :math:`c \leftarrow \rho\, c + \text{new}`.

    Once per arriving batch, not per sample: the weight of a sample depends on its age in batches alone, not
    on how much came after it, and one sample more or less does not change the weights of the others. A
    tick in which nothing arrives ages nothing.

    Symbols, here
        :math:`\rho`  -> rate; 1 is `Cumulative`

    >>> counter = Decay(rate=0.5)
    >>> once = counter.count(counter.begin(2), np.array([0, 0]))
    >>> counter.count(once, np.array([1])).tolist()
    [1.0, 1.0]
    """

    rate: float = 0.9

    def __post_init__(self) -> None:
        check_ranges(self, rate="(0, 1]")

    @property
    def span(self) -> None:
        return None

    def begin(self, num_classes: int) -> Floats:
        return np.zeros(num_classes)

    def count(self, counted: Floats, labels: Ints) -> Floats:
        return self.rate * counted + _bins(labels, len(counted)) if len(labels) else counted

    def histogram(self, counted: Floats, view: View) -> Floats:
        return counted


def _bins(labels: npt.NDArray[np.integer[Any]], num_classes: int) -> Ints:
    return np.bincount(labels, minlength=num_classes)


COUNTERS = {"cache": Cache, "cumulative": Cumulative, "decay": Decay, "window": Window}
