"""Views: a transform of the inputs and a map of the labels, which simulate drift.

Transformed inputs are virtual drift (P(x)), mapped labels are real drift (P(y | x)). A view is
applied when samples are read; the data set is not copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from thalweg.core.config import choice
from thalweg.core.errors import require
from thalweg.core.transforms import TRANSFORMS, Plain, Transform
from thalweg.core.types import Ints


@dataclass(frozen=True)
class View:
    """A transform of the inputs and a map of the labels."""

    transform: Transform = choice(TRANSFORMS, default=Plain())
    """The transform of the inputs."""
    labels: tuple[int, ...] | int | None = None
    """(C,) the new label of each class, or the number of a concept (`concept_map`).

    None: unchanged.
    """

    def __post_init__(self) -> None:
        lowest = min(self.labels, default=0) if isinstance(self.labels, tuple) else self.labels
        require(
            lowest is None or lowest >= 0,
            f"a view's labels are classes, or a concept, counted from 0; got {self.labels}.",
        )

    def label_map(self, num_classes: int) -> Ints:
        """(C,) the new label of each class.

        Raise `ConfigError` if they do not match the classes.
        """
        require(
            num_classes > 1 or self.labels in (None, 0, (0,)),
            "a view with other labels needs classes, but the targets are numbers (regression). "
            "Change the inputs instead (drift.to.transform=shifted), or leave the drift out.",
        )
        if self.labels is None or isinstance(self.labels, int):
            return concept_map(self.labels or 0, num_classes)
        require(
            len(self.labels) == num_classes and max(self.labels) < num_classes,
            f"a view's labels {self.labels} do not fit {num_classes} classes; expected "
            f"{num_classes} numbers, each from 0 to {num_classes - 1}.",
        )
        return np.array(self.labels, dtype=np.int64)

    def resolve(self, num_classes: int) -> View:
        """Return the view with an explicit label map, or None for unchanged labels."""
        labels = tuple(self.label_map(num_classes).tolist())
        return replace(self, labels=None if labels == tuple(range(num_classes)) else labels)


def concept_map(concept: int, num_classes: int) -> Ints:
    """(C,) the labels in a concept of a fixed list: y; C - 1 - y; y + 1; y + 2; ... mod C.

    With C classes there are concepts 0 to C. FedDAA counts its four concepts from 1.

    >>> [concept_map(concept, 4).tolist() for concept in range(4)]
    [[0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0], [2, 3, 0, 1]]
    """
    require(
        0 <= concept <= num_classes,
        f"with {num_classes} classes there are concepts 0 to {num_classes}, got {concept}.",
    )
    classes = np.arange(num_classes)
    if concept == 1:
        return classes[::-1].copy()
    shift = max(concept - 1, 0)
    return (classes + shift) % num_classes


def distinct_views(views: Iterable[View], num_classes: int) -> tuple[tuple[View, ...], list[int]]:
    """Return the distinct views, starting with a plain one, and the position of each view.

    >>> found, positions = distinct_views([View(labels=1), View(labels=0), View(labels=1)], 3)
    >>> [view.labels for view in found], positions
    ([None, (2, 1, 0)], [1, 0, 1])
    """
    position_of = {View(): 0}
    resolved = [view.resolve(num_classes) for view in views]
    positions = [position_of.setdefault(view, len(position_of)) for view in resolved]
    return tuple(position_of), positions


def concepts_of(views: Sequence[View], num_classes: int) -> Ints:
    """(V,) the concept of each view, in order of appearance; equal labels are the same concept.

    >>> concepts_of([View(), View(labels=(1, 0)), View(labels=(0, 1))], 2).tolist()
    [0, 1, 0]
    """
    number_of: dict[bytes, int] = {}
    maps = [view.label_map(num_classes).tobytes() for view in views]
    return np.array([number_of.setdefault(each, len(number_of)) for each in maps], dtype=np.int64)
