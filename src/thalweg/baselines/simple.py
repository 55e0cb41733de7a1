"""Learners that ignore the features: a lower bound for every comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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

    is_deterministic: ClassVar[bool] = True
    ignores_features: ClassVar[bool] = True
    task: ClassVar[str] = "classification"

    def begin(self, num_classes: int, seed: int) -> MajorityLearner:
        return MajorityLearner(num_classes)


@dataclass(frozen=True)
class Mean:
    """Predicts the mean of the targets so far, for regression; 0 before the first one.

    >>> learner = Mean().begin(num_classes=0, seed=0)
    >>> for target in (1.0, 4.0):
    ...     learner.learn(np.zeros(4, np.float32), target)
    >>> learner.predict(np.zeros(4, np.float32))
    2.5
    """

    is_deterministic: ClassVar[bool] = True
    ignores_features: ClassVar[bool] = True
    task: ClassVar[str] = "regression"

    def begin(self, num_classes: int, seed: int) -> MeanLearner:
        return MeanLearner()


@dataclass(frozen=True)
class NoChange:
    """Predicts the last label or number; 0 before the first one.

    Hard to beat where labels repeat. A high accuracy of this baseline is a warning that accuracy is
    not informative about learning.
    """

    is_deterministic: ClassVar[bool] = True
    ignores_features: ClassVar[bool] = True
    needs_last_label: ClassVar[bool] = True

    def begin(self, num_classes: int, seed: int) -> LastLabelLearner:
        return LastLabelLearner()


class MajorityLearner:
    """Counts of each label."""

    def __init__(self, num_classes: int) -> None:
        self._counts = np.zeros(num_classes, dtype=np.int64)

    def predict(self, x: Floats32) -> int:
        return int(self._counts.argmax())

    def learn(self, x: Floats32, label: float) -> None:
        self._counts[int(label)] += 1


class MeanLearner:
    """Sum and number of the targets."""

    def __init__(self) -> None:
        self._sum, self._num = 0.0, 0

    def predict(self, x: Floats32) -> float:
        return self._sum / self._num if self._num else 0.0

    def learn(self, x: Floats32, label: float) -> None:
        self._sum, self._num = self._sum + label, self._num + 1


class LastLabelLearner:
    """The last label."""

    def __init__(self) -> None:
        self._last: float = 0

    def predict(self, x: Floats32) -> float:
        return self._last

    def learn(self, x: Floats32, label: float) -> None:
        self._last = label
