"""Models as clients serve them: each client mixes its predictors with its current weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from thalweg.core.types import Floats32
from thalweg.engine.client_pool import ClientPool
from thalweg.federation import ClientState, ServedModels, ServerState, get_served_models
from thalweg.federation.serving import ServingState, name_predictors
from thalweg.recipes import Recipe
from thalweg.recipes.base import list_predictors
from thalweg.serving import AVERAGED, LAST_LABEL, LATEST, MODEL, TRAINED, Serving


def get_chosen_models(server: ServerState, recipe: Recipe, client_pool: ClientPool) -> ServedModels:
    """Return all models that clients serve, with the mixture of each client.

    They are the models of the bank, their averages if clients receive them, and the result of each
    client's last local steps. Clients have the newest models of the server, as in every evaluation.
    The last label predicts no sample without a predecessor, so that its weight is divided among the
    others. If the states of the clients are not in this process, the server's models are returned.
    """
    served = get_served_models(server, recipe)
    if not client_pool.states:
        return served
    assert recipe.serving is not None
    number, num_models = client_pool.world.num_clients, len(server.bank)
    usual = served.mixtures  # (N, models) how the bank mixes its models
    if usual is None:
        usual = np.tile(served.shares, (number, 1))
    has_averages = AVERAGED in list_predictors(recipe)
    blocks: list[Floats32] = [server.bank, *([served.models] if has_averages else [])]
    first_own = num_models * len(blocks)
    trained = {
        client: state.trained
        for client, state in sorted(client_pool.states.items())
        if state.trained is not None
    }
    columns = {client: first_own + place for place, client in enumerate(trained)}
    mixtures = np.zeros((number, first_own + len(trained)))
    for client in range(number):
        weights = mix_predictors(
            recipe, client_pool.states.get(client), num_models, client in trained
        )
        mine = mixtures[client]
        mine[:num_models] += weights.pop(LATEST, 0.0) * usual[client]
        if has_averages:
            mine[num_models:first_own] += weights.pop(AVERAGED, 0.0) * usual[client]
        if client in trained:
            mine[columns[client]] += weights.pop(TRAINED, 0.0)
        for name, weight in weights.items():
            mine[int(name.partition(" ")[2])] += weight
    default = np.zeros(mixtures.shape[1])
    start = first_own - num_models  # the models that the server evaluates
    default[start:first_own] = served.shares
    models = np.concatenate([*blocks, *(own[None] for own in trained.values())])
    return ServedModels(models, default, mixtures)


def mix_predictors(
    recipe: Recipe, state: ClientState | None, num_models: int, has_trained: bool
) -> dict[str, float]:
    """Return the weights of the models of one client for a sample without a predecessor."""
    serving = recipe.serving
    assert serving is not None
    own = _get_state(serving, state)
    names = name_predictors(recipe, own.num_models)
    available = np.array([_is_available(name, num_models, has_trained) for name in names])
    weights = serving.mix(own.policy, available).tolist()
    return {name: weights[row] for row, name in enumerate(names) if available[row]}


def measure_weights(recipe: Recipe, client_pool: ClientPool) -> dict[str, Any]:
    """Return the mean weight of each kind of predictor over the clients that have predicted."""
    serving = recipe.serving
    if serving is None or not client_pool.states:
        return {}
    total: dict[str, float] = {}
    for state in client_pool.states.values():
        own = _get_state(serving, state)
        names = name_predictors(recipe, own.num_models)
        is_known = {TRAINED: state.trained is not None, LAST_LABEL: len(own.last) > 0}
        available = np.array([is_known.get(name, True) for name in names])
        for name, weight in zip(names, serving.mix(own.policy, available).tolist(), strict=True):
            kind = MODEL if name.startswith(f"{MODEL} ") else name
            total[kind] = total.get(kind, 0.0) + weight
    number = len(client_pool.states)
    return {"serving_weights": {kind: weight / number for kind, weight in total.items()}}


def _get_state(serving: Serving, state: ClientState | None) -> ServingState:
    if state is not None and state.serving is not None:
        return state.serving
    return ServingState(serving.init(), np.empty(0))


def _is_available(name: str, num_models: int, has_trained: bool) -> bool:
    if name.startswith(f"{MODEL} "):
        return int(name.partition(" ")[2]) < num_models
    return name != LAST_LABEL and (name != TRAINED or has_trained)
