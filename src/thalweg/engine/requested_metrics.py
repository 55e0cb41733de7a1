"""Compute the metrics that a scenario requests, on the test set."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from thalweg.core.types import Floats, Ints
from thalweg.data import Dataset
from thalweg.engine.per_client_eval import get_model_use
from thalweg.engine.scores import split_test_set
from thalweg.engine.simulated import SimulatedFederation
from thalweg.evaluation.mixtures import group_clients
from thalweg.evaluation.named import get_named_metric
from thalweg.federation import ServedModels

# Metrics that have failed, by run.
_WARNED: WeakKeyDictionary[SimulatedFederation, set[str]] = WeakKeyDictionary()


def compute_requested_metrics(
    names: Sequence[str],
    served: ServedModels,
    federation: SimulatedFederation,
    data: Dataset,
    validation: float,
    rnd: int,
    row: Mapping[str, Any],
) -> dict[str, float]:
    """Return the requested metrics that the row does not have yet, averaged over the clients.

    Each client predicts with its mixture of models, in its view of the test set: the weighted mean
    of their class probabilities, or of their outputs in a regression. A metric that raises or is
    not finite is nan, with one warning in a run.
    """
    found = [get_named_metric(name, data.task, data.name) for name in names]
    metrics = [metric for metric in found if metric.name not in row]
    if not metrics:
        return {}
    rows, _ = split_test_set(data, validation)
    use = get_model_use(served, federation, rnd)
    groups = group_clients(use.views, use.mixtures)
    sizes = [len(group.clients) for group in groups]
    values: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    for _, view, models, weights in groups:
        here = rows + view * data.num_samples("test")
        outputs = _mix(served, federation, data, here, models, weights)
        targets = data.labels("test", here)
        is_regression = data.task == "regression"
        predicted = outputs.reshape(targets.shape) if is_regression else outputs.argmax(axis=1)
        for metric in metrics:
            given = outputs if metric.needs_probabilities else predicted
            value, failure = metric.compute(targets, given)
            values[metric.name].append(value)
            warned = _WARNED.setdefault(federation, set())
            if failure and metric.name not in warned:
                warned.add(metric.name)
                warnings.warn(
                    f"round {rnd + 1}: {failure} It is nan in the rows of such rounds, and the run "
                    "continues; later failures of this metric are not reported.",
                    stacklevel=2,
                )
    return {name: fmean(each, weights=sizes) for name, each in values.items()}


def _mix(
    served: ServedModels,
    federation: SimulatedFederation,
    data: Dataset,
    rows: Any,
    models: Ints,
    weights: Floats,
) -> Floats:
    """Return class probabilities (n, C), or outputs (n, D), of a mixture of models."""
    total = np.zeros((len(rows), data.num_outputs))
    all_scores = federation.scores_many(served.models[models], "test", rows)
    for weight, found in zip(weights, all_scores, strict=True):
        scores = found.astype(np.float64)
        total += weight * (scores if data.task == "regression" else np.exp(scores))
    return total
