"""Evaluate models as clients use them: each client with its mixture of models and its view."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from thalweg.core.mixtures import Mixtures
from thalweg.core.transforms import Plain, Transform
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.core.views import concepts_of
from thalweg.data import Dataset
from thalweg.engine.scores import (
    SampleOutcomes,
    compute_subset_scores,
    make_validation_row,
    measure_local_accuracies,
    split_test_set,
)
from thalweg.engine.simulated import SimulatedFederation
from thalweg.evaluation import ClientTests, SessionContext, client_tests, purity
from thalweg.evaluation.clients import Bools
from thalweg.evaluation.mixtures import ModelScores
from thalweg.evaluation.sessions import session_accuracy
from thalweg.federation import ServedModels
from thalweg.streams import HasViews

MAX_CACHED_BYTES = 2**29  # of all predictions in a `ScoreCache`


class ModelUse(NamedTuple):
    """The mixture of models, the view and the concept of each client."""

    mixtures: Mixtures
    views: Ints  # (N,)
    concepts: Ints | None  # (N,) true concepts; None in a world without views


class ScoreCache:
    """Caches the predictions of models on the test samples in every view.

    Views with the same inputs share their predictions.
    """

    def __init__(self, federation: SimulatedFederation, models: Floats32, data: Dataset) -> None:
        self._federation, self._models, self._data = federation, models, data
        self._cached: dict[tuple[int, Transform], Floats32] = {}

    @property
    def num_models(self) -> int:
        return len(self._models)

    def scores(self, view: int, models: Ints) -> Floats32:
        """Return log probabilities of the classes (models, n, C)."""
        transform = self._data.views[view].transform if self._data.views else Plain()
        found = {
            model: self._cached[model, transform]
            for model in models.tolist()
            if (model, transform) in self._cached
        }
        missing = [model for model in models.tolist() if model not in found]
        if missing:
            rows = self._rows(view)
            scores = self._federation.scores_many(self._models[missing], "test", rows)
            found |= dict(zip(missing, scores, strict=True))
            if (len(self._cached) + len(missing)) * scores[0].nbytes <= MAX_CACHED_BYTES:
                self._cached |= {(model, transform): found[model] for model in missing}
        return np.stack([found[model] for model in models.tolist()])

    def labels(self, view: int) -> Ints:
        """Return the labels of the test samples in a view, (n,)."""
        return self._data.labels("test", self._rows(view))

    def _rows(self, view: int) -> Ints:
        number = self._data.num_samples("test")
        return np.arange(view * number, (view + 1) * number)


def get_model_use(served: ServedModels, federation: SimulatedFederation, rnd: int) -> ModelUse:
    """Return how clients use the served models after a round, counted from 0.

    If the bank has no mixtures, every client uses all models, in proportion to their shares.
    """
    world = federation.client_pool.world
    mixtures = served.mixtures
    if mixtures is None:
        mixtures = Mixtures.from_rows(np.tile(served.shares, (world.num_clients, 1)))
    if not isinstance(world, HasViews):
        return ModelUse(mixtures, np.zeros(world.num_clients, dtype=np.int64), None)
    when = federation.client_pool.clock(rnd)
    return ModelUse(mixtures, world.views_at(when), world.concepts_at(when))


def score_per_client(
    score_cache: ScoreCache,
    use: ModelUse,
    federation: SimulatedFederation,
    data: Dataset,
    validation: float = 0.0,
    session_context: SessionContext | None = None,
) -> dict[str, Any]:
    """Return scores of the test set, averaged over clients, and scores of the validation part.

    The accuracy of a client is that on the whole test set in its view; `client_accuracy` uses
    samples with the client's own label distribution.
    """
    world = federation.client_pool.world
    for_test, for_choice = split_test_set(data, validation)
    tests = _test_clients(score_cache, use, federation, data, for_test)
    members = None
    if session_context is not None:
        members = _session_accuracy(score_cache, use, federation, for_test, session_context)
    outcomes = SampleOutcomes(tests.right, tests.losses, tests.local_accuracies, members)
    row: dict[str, Any] = dict(
        compute_subset_scores(for_test, outcomes, data, world, session_context)
    )
    if for_choice is not None:
        chosen_by = _test_clients(score_cache, use, federation, data, for_choice)
        outcomes = SampleOutcomes(chosen_by.right, chosen_by.losses, chosen_by.local_accuracies)
        row |= make_validation_row(compute_subset_scores(for_choice, outcomes, data, world))
    if use.concepts is not None:
        row |= _concept_metrics(tests.accuracies, use, data)
    return row


def _test_clients(
    score_cache: ScoreCache,
    use: ModelUse,
    federation: SimulatedFederation,
    data: Dataset,
    rows: Ints,
) -> ClientTests:
    """Return the predictions of each client on some test samples."""
    own = measure_local_accuracies(rows, data, federation.client_pool.world)
    scores, labels = _get_scores(score_cache, use, rows)
    return client_tests(scores, labels, use.views, use.mixtures, own)


def _session_accuracy(
    score_cache: ScoreCache,
    use: ModelUse,
    federation: SimulatedFederation,
    rows: Ints,
    session_context: SessionContext,
) -> float:
    """Return the mean over members of the accuracy on labels that members have, in their views."""
    members, mixes = session_context.members, federation.client_pool.world.mixes

    def on_their_labels(right: Bools, labels: Ints, clients: Ints) -> Floats:
        return np.full(len(clients), session_accuracy(right, labels, mixes, session_context))

    scores, labels = _get_scores(score_cache, use, rows)
    views, mixtures = use.views[members], use.mixtures.take(members)
    found = client_tests(scores, labels, views, mixtures, on_their_labels)
    known = found.local_accuracies[~np.isnan(found.local_accuracies)]
    return float(known.mean()) if len(known) else float("nan")


def _get_scores(
    score_cache: ScoreCache, use: ModelUse, rows: Ints
) -> tuple[ModelScores, dict[int, Ints]]:
    """Return a function for the scores of samples, and their labels in all used views."""
    labels = {view: score_cache.labels(view)[rows] for view in np.unique(use.views).tolist()}
    return lambda view, models: score_cache.scores(view, models)[:, rows], labels


def _concept_metrics(accuracies: Floats, use: ModelUse, data: Dataset) -> dict[str, Any]:
    """Return the mean accuracy of the clients of each concept, and the purity of the models.

    Empty with fewer than two concepts. The accuracy of a concept without clients is None.
    """
    concepts = use.concepts
    if concepts is None or len(np.unique(concepts)) < 2:
        return {}
    number = int(concepts_of(data.views, data.num_classes).max()) + 1
    of_each = [accuracies[concepts == concept] for concept in range(number)]
    means = [float(mine.mean()) if len(mine) else None for mine in of_each]
    row: dict[str, Any] = {"concept_accuracy": means}
    if use.mixtures.num_models > 1:
        row["purity"] = purity(use.mixtures.find_main_models(), concepts)
    return row
