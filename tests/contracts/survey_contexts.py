"""A fake `SurveyContext` with few samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from contracts.model_probes import FakeModelProbe
from thalweg.core.noise import NoiseGenerator
from thalweg.core.types import Ints, Supply


@dataclass
class FakeSurveyContext:
    """Samples 0 .. 9, of class row % 3; the loss of model m is drawn from the seed."""

    seed: int = 0
    num_models: int = 1
    has_data: bool = True
    num_classes: int = 3
    lr: float = 0.1
    label_counts: Any = None
    split: Any = None
    rnd: int = 0
    capacity: int = 10
    supply: Supply = field(default_factory=lambda: Supply(10.0, True, 5.0))

    @property
    def held(self) -> Ints:
        return np.arange(10 if self.has_data else 0)

    @property
    def since(self) -> Ints | None:
        return np.zeros(len(self.held), dtype=np.int64)

    @property
    def newest(self) -> Ints:
        return self.held

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @property
    def noise(self) -> NoiseGenerator:
        return self.rng

    def labels(self, rows: Ints) -> Ints:
        return rows % self.num_classes

    def probe_model(self, model: int = 0) -> FakeModelProbe:
        losses = self.rng.uniform(0.1, 3.0, self.num_models)
        return FakeModelProbe([1.0, 2.0], loss=float(losses[model]))
