"""Evaluate models on every task: the test set in each view that the clients of a world have."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from thalweg.core.config import kind_of
from thalweg.core.transforms import TRANSFORMS, Transform
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.views import concepts_of
from thalweg.data import Dataset
from thalweg.engine.per_client_eval import ModelUse, ScoreCache
from thalweg.evaluation import ASSIGNMENTS, Assignment, mixture_by_concept, mixture_by_labels
from thalweg.evaluation.mixtures import score_mixture


def task_records(score_cache: ScoreCache, use: ModelUse, data: Dataset) -> list[dict[str, Any]]:
    """Return one record for each view and each way to choose a mixture of models for it.

    The whole test set and all models of the bank are used, also models without clients. `clients`
    is the number of clients that have the view now. The accuracy is None if a mixture needs a
    client with the concept and there is none.
    """
    records = []
    everything = np.arange(score_cache.num_models)
    concepts = concepts_of(data.views, data.num_classes)
    for view, concept in enumerate(concepts.tolist()):
        scores, labels = score_cache.scores(view, everything), score_cache.labels(view)
        for assignment, mixture in _mixtures(scores, labels, use, concept):
            right = None if mixture is None else score_mixture(scores, mixture, labels)[0]
            records.append(
                {
                    "task": task_name(data.views[view].transform, concept),
                    "concept": concept + 1,
                    "assignment": assignment,
                    "accuracy": None if right is None else float(right.mean()),
                    "clients": int((use.views == view).sum()),
                }
            )
    return records


def _mixtures(
    scores: Floats32, labels: Ints, use: ModelUse, concept: int
) -> Iterator[tuple[Assignment, Floats | None]]:
    losses = -np.take_along_axis(scores, labels[None, :, None], axis=2)[:, :, 0]  # (models, n)
    for assignment in ASSIGNMENTS:
        if assignment == "labels":
            yield assignment, mixture_by_labels(losses)
        elif use.concepts is not None:
            yield assignment, mixture_by_concept(use.mixtures, use.concepts, concept)


def task_name(transform: Transform, concept: int) -> str:
    """Return the name of a task; concepts count from 1, as in papers.

    >>> from thalweg.core.transforms import Plain, Rotated
    >>> task_name(Plain(), 0), task_name(Rotated(120), 3)
    ('1, plain', '4, rotated 120')
    """
    numbers = (getattr(transform, field.name) for field in dataclasses.fields(transform))  # type: ignore[arg-type]
    words = [kind_of(transform, TRANSFORMS), *(f"{number:g}" for number in numbers)]
    return f"{concept + 1}, {' '.join(words)}"
