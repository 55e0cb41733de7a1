"""The rows of one client, from which its stream is drawn without replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from thalweg.core.types import Ints


class QueueState(NamedTuple):
    """Progress of a client's stream."""

    counts: Ints  # (C,) rows of each class delivered since the last restart
    focus: int  # class that is delivered first until it is used up; -1: none


@dataclass(frozen=True, eq=False)
class ClassQueues:
    """One queue of rows per class. The state is C numbers, independent of the number of rows."""

    rows: Ints  # ordered by class, random order inside each class
    sizes: Ints  # (C,) rows of each class

    @classmethod
    def from_rows(
        cls, rows: Ints, labels: Ints, num_classes: int, rng: np.random.Generator
    ) -> ClassQueues:
        """Build the queues of a client's rows."""
        rows = rng.permutation(rows)
        by_class = rows[np.argsort(labels[rows], kind="stable")]
        return cls(by_class, np.bincount(labels[rows], minlength=num_classes))

    def begin(self) -> QueueState:
        return QueueState(np.zeros(len(self.sizes), dtype=np.int64), -1)

    def switch_focus(self, taken: QueueState, rng: np.random.Generator) -> QueueState:
        """Focus on another class, drawn in proportion to the remaining rows of each class."""
        left = self.sizes - taken.counts
        others = left.copy()
        if taken.focus >= 0:
            others[taken.focus] = 0
        if not others.any():
            return taken
        return taken._replace(focus=int(rng.choice(len(left), p=others / others.sum())))

    def take(
        self, taken: QueueState, count: int, restarts: bool, rng: np.random.Generator
    ) -> tuple[QueueState, Ints]:
        """The next (at most `count`) rows: the focused class first, the others at random.

        Drawing classes in proportion to the remaining rows has the same distribution as one random
        order of all rows that is fixed in advance.
        """
        parts = [self.rows[:0]]
        while count > 0 and len(self.rows):
            left = self.sizes - taken.counts
            if not left.any():
                if not restarts:
                    break
                taken = self.begin()._replace(focus=taken.focus)
                continue
            taken, lap = self._take_available(taken, left, min(count, int(left.sum())), rng)
            count -= len(lap)
            parts.append(lap)
        return taken, np.concatenate(parts)

    def _take_available(
        self, taken: QueueState, left: Ints, count: int, rng: np.random.Generator
    ) -> tuple[QueueState, Ints]:
        """`count` rows; at least as many are left."""
        first = np.zeros_like(left)
        if taken.focus >= 0:
            first[taken.focus] = min(count, left[taken.focus])
        rest = count - int(first.sum())
        mixed = rng.multivariate_hypergeometric(left - first, rest) if rest else 0 * first
        after_first = taken.counts + first
        rows = np.concatenate(
            [
                self._next_rows(taken.counts, first),
                rng.permutation(self._next_rows(after_first, mixed)),
            ]
        )
        return taken._replace(counts=after_first + mixed), rows

    def _next_rows(self, done: Ints, counts: Ints) -> Ints:
        """The next rows of every queue."""
        begins = np.cumsum(self.sizes) - self.sizes + done
        pieces = [self.rows[begins[c] : begins[c] + counts[c]] for c in np.flatnonzero(counts)]
        return np.concatenate([self.rows[:0], *pieces])
