"""Evaluate models of a regression on the test set, as the clients use them."""

from __future__ import annotations

from statistics import fmean

import numpy as np

from thalweg.core.types import Floats, Floats32, Ints
from thalweg.data import Dataset
from thalweg.data.base import Targets
from thalweg.engine.per_client_eval import get_model_use
from thalweg.engine.scores import split_test_set
from thalweg.engine.simulated import SimulatedFederation
from thalweg.evaluation import SessionContext
from thalweg.evaluation.mixtures import ClientGroup, group_clients
from thalweg.evaluation.numbers import compute_abs_errors, mean_by_owner, score_numbers
from thalweg.evaluation.sessions import session_member_errors
from thalweg.federation import ServedModels


def evaluate_regression(
    served: ServedModels,
    federation: SimulatedFederation,
    data: Dataset,
    validation: float,
    rnd: int,
    session_context: SessionContext | None = None,
) -> dict[str, float]:
    """Return the scores of the served models after a round, averaged over the clients.

    Each client predicts with its mixture of the models: the weighted mean of their outputs. Its
    loss is the weighted mean of their losses. Clients with the same mixture and the same view of
    the test set have the same scores and are computed once.
    """
    for_test, for_choice = split_test_set(data, validation)
    use = get_model_use(served, federation, rnd)
    num_clients = len(use.views)
    has_tests = federation.client_pool.world.has_clients_of_data
    owner = data.client_test[for_test] if has_tests and data.client_test is not None else None
    cached: dict[tuple[int, int], tuple[Targets, Floats32]] = {}
    rows, shares, of_clients = [], [], np.full(num_clients, np.nan)
    validation_rows: list[dict[str, float]] = []
    for group in group_clients(use.views, use.mixtures):
        predicted, losses = _predict_mixture(served, federation, data, group, cached)
        rows.append(_score(predicted, losses, data.y_test, for_test))
        shares.append(len(group.clients) / num_clients)
        if for_choice is not None:
            found = _score(predicted, losses, data.y_test, for_choice)
            validation_rows.append({"validation_mae": found["mae"]})
        if owner is not None:
            errors = compute_abs_errors(predicted[for_test], data.y_test[for_test])
            means = mean_by_owner(errors, owner, num_clients)
            of_clients[group.clients] = means[group.clients]
    row = _average(rows, shares) | _average(validation_rows, shares)
    known = of_clients[~np.isnan(of_clients)]
    if len(known):  # unknown without the clients of the test samples
        row["client_mae"], row["worst_client_mae"] = float(known.mean()), float(known.max())
        if session_context is not None:
            row |= session_member_errors(of_clients, session_context)
    return row


def _predict_mixture(
    served: ServedModels,
    federation: SimulatedFederation,
    data: Dataset,
    group: ClientGroup,
    cached: dict[tuple[int, int], tuple[Targets, Floats32]],
) -> tuple[Targets, Floats]:
    """Return the predictions (n,) or (n, D) and losses (n,) of the mixture of a group."""
    view, n = group.view, data.num_samples("test")
    predicted, losses = np.zeros(data.y_test.shape), np.zeros(n)
    used = group.models.tolist()
    if missing := [model for model in used if (model, view) not in cached]:
        rows = np.arange(view * n, (view + 1) * n)
        found = zip(*federation.predict_many(served.models[missing], "test", rows), strict=True)
        cached |= zip([(model, view) for model in missing], found, strict=True)
    for model, weight in zip(used, group.weights, strict=True):
        outputs, losses_here = cached[model, view]
        predicted += weight * outputs
        losses += weight * losses_here
    return predicted, losses


def _score(predicted: Targets, losses: Floats, targets: Targets, rows: Ints) -> dict[str, float]:
    return {
        **score_numbers(predicted[rows], targets[rows]),
        "test_loss": float(losses[rows].mean()),
    }


def _average(rows: list[dict[str, float]], shares: list[float]) -> dict[str, float]:
    """Return the weighted mean of the rows; names that some rows lack are left out."""
    if not rows:
        return {}
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: fmean([row[name] for row in rows], weights=shares) for name in names}
