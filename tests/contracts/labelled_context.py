"""A fake `SurveyContext` with given labels and losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from contracts.model_probes import FakeModelProbe
from thalweg.core.noise import NoiseGenerator
from thalweg.core.types import Floats32, Ints, Supply


class LossByRow(FakeModelProbe):
    """A model probe with a given loss for each row of the data set."""

    def __init__(self, losses: Sequence[float]) -> None:
        super().__init__([0.0])
        self.row_losses = np.array(losses, dtype=np.float32)

    def losses(self, rows: Ints) -> Floats32:
        self.asked.append(rows.tolist())
        return self.row_losses[rows]


@dataclass
class LabelledContext:
    """The context of a client that holds rows of a small data set, by default all."""

    all_labels: Ints
    model: LossByRow
    num_classes: int
    label_counts: Any
    rng: np.random.Generator
    num_models: int = 1
    rnd: int = 0
    split: Any = None
    lr: float = 0.1
    num_held: int | None = None  # the other rows arrive next; None: it holds all rows
    capacity: int = 100

    @property
    def noise(self) -> NoiseGenerator:
        return self.rng

    @property
    def held(self) -> Ints:
        return np.arange(len(self.all_labels))[: self.num_held]

    @property
    def since(self) -> Ints:
        return np.zeros(len(self.held), dtype=np.int64)

    @property
    def newest(self) -> Ints:
        return (
            self.held if self.num_held is None else np.arange(self.num_held, len(self.all_labels))
        )

    @property
    def supply(self) -> Supply:
        return Supply(float(len(self.all_labels)), False, 10.0)

    def labels(self, rows: Ints) -> Ints:
        return self.all_labels[rows]

    def probe_model(self, model: int = 0) -> LossByRow:
        return self.model


def some_context(
    labels: Sequence[int],
    *,
    losses: Sequence[float] | None = None,
    num_classes: int = 3,
    label_counts: Any = None,
    seed: int = 0,
) -> LabelledContext:
    """Return the context of a client with these labels, on which the model has these losses."""
    return LabelledContext(
        all_labels=np.array(labels, dtype=np.int64),
        model=LossByRow([1.0] * len(labels) if losses is None else losses),
        num_classes=num_classes,
        label_counts=label_counts,
        rng=np.random.default_rng(seed),
    )
