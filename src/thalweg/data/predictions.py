"""Predictions of one model, for trainers that predict with several models at once."""

from __future__ import annotations

from abc import ABC, abstractmethod

from thalweg.core.types import Floats32, Ints
from thalweg.data.base import Part, Targets


class ModelPredictions(ABC):
    """Derives the predictions of one model from those of several."""

    @abstractmethod
    def predict_many(
        self, models: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]: ...

    @abstractmethod
    def scores_many(self, models: Floats32, part: Part, rows: Ints | None = None) -> Floats32: ...

    def predict(
        self, params: Floats32, part: Part, rows: Ints | None = None
    ) -> tuple[Targets, Floats32]:
        predicted, losses = self.predict_many(params[None], part, rows)
        return predicted[0], losses[0]

    def scores(self, params: Floats32, part: Part, rows: Ints | None = None) -> Floats32:
        scores: Floats32 = self.scores_many(params[None], part, rows)[0]
        return scores
