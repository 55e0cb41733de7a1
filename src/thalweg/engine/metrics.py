"""The metrics of a round, and the summary of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from thalweg.core.metrics import make_final_row
from thalweg.core.mixtures import Mixtures
from thalweg.core.types import Updates
from thalweg.data import Dataset
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.per_client_eval import ScoreCache, get_model_use, score_per_client
from thalweg.engine.regression import evaluate_regression
from thalweg.engine.requested_metrics import compute_requested_metrics
from thalweg.engine.scores import score_predictions
from thalweg.engine.serving import get_chosen_models
from thalweg.engine.simulated import SimulatedFederation
from thalweg.engine.tasks import task_records
from thalweg.evaluation import (
    ASSIGNMENTS,
    SessionContext,
    recoveries,
    step_accuracies,
    task_summary,
    transitions,
)
from thalweg.federation import ServedModels, ServerState, bytes_up, get_served_models
from thalweg.recipes import Recipe
from thalweg.scenarios import Scenario

# Beginnings of the names of metrics that are means over clients, each on data like its own.
AT_CLIENTS = ("client_", "worst_client_", "stayers_", "newcomers_")


def needs_evaluation(
    scenario: Scenario, rounds_done: int, session_context: SessionContext | None
) -> bool:
    """Return whether to evaluate after a round; without sessions the run is one session."""
    since = rounds_done if session_context is None else session_context.session_round
    return (
        rounds_done % scenario.evaluate_every == 0
        or rounds_done == scenario.rounds
        or since <= scenario.evaluate_first
    )


def round_row(
    server: ServerState, updates: Updates | None, session_context: SessionContext | None
) -> dict[str, Any]:
    """Return the metrics of a round that need no evaluation."""
    row: dict[str, Any] = {"round": server.rnd, "cohort": _count_responses(updates)}
    if session_context is not None:
        row |= {"session": session_context.session, "session_round": session_context.session_round}
    if updates is None:
        return row | {"bytes_down": 0, "bytes_up": 0}
    in_time = updates.staleness(server.rnd - 1) == 0  # late updates are about an older model
    trained = in_time & (updates.num_steps > 0)
    if trained.any() and not np.isnan(updates.losses[trained]).all():  # else they are omitted
        row["loss"] = float(updates.losses[trained].mean())
    if num_tested := int(updates.num_tested[in_time].sum()):
        if updates.error_sums is not None:
            row["prequential_mae"] = float(updates.error_sums[in_time].sum() / num_tested)
        else:
            row["prequential_accuracy"] = float(updates.num_correct[in_time].sum() / num_tested)
        row["tested"] = num_tested
    row["bytes_down"] = updates.bytes_down
    row["bytes_up"] = bytes_up(updates)
    if len(server.bank) > 1:
        row["models"] = len(server.bank)
    return row | dict(updates.extra_metrics)


def sample_bytes(data: Dataset) -> int:
    """Return the bytes of one sample and its target that a client sends, 4 for each number."""
    return 4 * int(np.prod(data.x.shape[1:]) + np.prod(data.y.shape[1:]))


def _count_responses(updates: Updates | None) -> int:
    """Count responses: one per client and round, however many models it has trained."""
    if updates is None:
        return 0
    responses = zip(updates.clients.tolist(), updates.staleness(0).tolist(), strict=True)
    return len(set(responses))


def count_learned_states(client_pool: ClientPool) -> dict[str, float]:
    """Return the mean number of latent states that the clients' forecasts have learned, if any."""
    forecast = client_pool.clients.forecast_with_recognition
    if forecast is None or not client_pool.states:
        return {}
    histograms = client_pool.clients.stream.state_table.histograms
    counts = [
        len(forecast.signatures(state.forecast, histograms))
        for state in client_pool.states.values()
    ]
    return {"forecast_states": fmean(counts)}


def evaluate_round(
    server: ServerState,
    recipe: Recipe,
    federation: SimulatedFederation,
    data: Dataset,
    validation: float,
    session_context: SessionContext | None,
    has_tasks: bool = False,
    requested: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the scores of the served models on the test set.

    With a serving policy, scores at clients are those of the predictors that they chose, and all
    others those of the server's models.
    """
    if len(data.y_test) == 0:
        return {}
    served = get_served_models(server, recipe)
    if getattr(recipe.bank, "keeps_trained_models", False):
        served = _get_trained_models(served, federation.client_pool)
    row = _evaluate(
        served, recipe, federation, data, validation, server.rnd, session_context, has_tasks
    )
    if recipe.serving is not None:
        served = get_chosen_models(server, recipe, federation.client_pool)
        chosen = _evaluate(  # tasks are those of the server's models
            served, recipe, federation, data, validation, server.rnd, session_context, False
        )
        row |= {name: value for name, value in chosen.items() if name.startswith(AT_CLIENTS)}
    return row | compute_requested_metrics(
        requested, served, federation, data, validation, server.rnd - 1, row
    )


def _evaluate(
    served: ServedModels,
    recipe: Recipe,
    federation: SimulatedFederation,
    data: Dataset,
    validation: float,
    rounds_done: int,
    session_context: SessionContext | None,
    has_tasks: bool,
) -> dict[str, Any]:
    """Return the scores that every run has."""
    if data.task == "regression":
        return evaluate_regression(
            served, federation, data, validation, rounds_done - 1, session_context
        )
    if not data.views and (served.mixtures is None or len(served.models) == 1):
        return _evaluate_shared(served, federation, data, validation, session_context)
    score_cache = ScoreCache(federation, served.models, data)
    use = get_model_use(served, federation, rounds_done - 1)
    row = score_per_client(score_cache, use, federation, data, validation, session_context)
    if recipe.serving is not None or getattr(recipe.bank, "has_personal_models", False):
        row.pop("purity", None)  # one model per client is always pure
    if has_tasks and data.views:
        row["tasks"] = task_records(score_cache, use, data)
    return row


def _get_trained_models(served: ServedModels, client_pool: ClientPool) -> ServedModels:
    """Return one model for each client: what it has trained last, or else the global model."""
    number = client_pool.world.num_clients
    models = np.repeat(served.models, number, axis=0)
    for client, state in client_pool.states.items():
        if state.trained is not None:
            models[client] = state.trained
    each = np.arange(number)
    mixtures = Mixtures(np.empty((number, 0)), each, each, np.ones(number), number)
    return ServedModels(models, np.full(number, 1 / number), mixtures)


def _evaluate_shared(
    served: ServedModels,
    federation: SimulatedFederation,
    data: Dataset,
    validation: float,
    session_context: SessionContext | None,
) -> dict[str, Any]:
    """Return the mean of the scores of all models, weighted by the share of their clients."""
    total: dict[str, float] = {}
    used = np.flatnonzero(served.shares)
    found = zip(*federation.predict_many(served.models[used], "test", None), strict=True)
    for share, (predicted, losses) in zip(served.shares[used], found, strict=True):
        row = score_predictions(
            predicted, losses, data, federation.client_pool.world, validation, session_context
        )
        for name, value in row.items():
            total[name] = total.get(name, 0.0) + float(share) * value
    return total


def summarise_run(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of a run: last round, and any sessions, drift steps and tasks."""
    summary: dict[str, Any] = {"rounds": len(metrics), "final": make_final_row(metrics)}
    if found := transitions(metrics):
        summary["transitions"] = [transition.to_record() for transition in found]
    if recovered := recoveries(metrics):
        steps = step_accuracies(metrics)
        summary["steps"] = {
            "accuracy": steps,
            "step_accuracy": fmean(steps) if steps else None,
            "recoveries": [recovery._asdict() for recovery in recovered],
        }
    for name in ("drift_precision", "drift_recall"):
        if scores := [row[name] for row in metrics if name in row]:
            summary[name] = fmean(scores)
    tasks = [task_summary(metrics, assignment) for assignment in ASSIGNMENTS]
    if any(tasks):
        summary["tasks"] = [each for each in tasks if each is not None]
    return summary
