"""Learners that ignore the features: a lower bound for every comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thalweg.core.types import Floats32


@dataclass(frozen=True)
class Majority:
    """Predicts the most frequent label so far; ties go to the smallest label.

    >>> learner = Majority().begin(num_classes=3, seed=0)
    >>> for label in (2, 1, 1):
    ...     learner.learn(np.zeros(4, np.float32), label)
    >>> learner.predict(np.zeros(4, np.float32))
    1
    """

    def begin(self, num_classes: int, seed: int) -> MajorityLearner:
        return MajorityLearner(num_classes)


@dataclass(frozen=True)
class NoChange:
    """Predicts the last label; 0 before the first one.

    Hard to beat where labels repeat. A high accuracy of this baseline is a warning that accuracy is
    not informative about learning.
    """

    def begin(self, num_classes: int, seed: int) -> LastLabelLearner:
        return LastLabelLearner()


class MajorityLearner:
    """Counts of each label."""

    def __init__(self, num_classes: int) -> None:
        self._counts = np.zeros(num_classes, dtype=np.int64)

    def predict(self, x: Floats32) -> int:
        return int(self._counts.argmax())

    def learn(self, x: Floats32, label: int) -> None:
        self._counts[label] += 1


class LastLabelLearner:
    """The last label."""

    def __init__(self) -> None:
        self._last = 0

    def predict(self, x: Floats32) -> int:
        return self._last

    def learn(self, x: Floats32, label: int) -> None:
        self._last = label
