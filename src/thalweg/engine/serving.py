"""Models as clients serve them: each client mixes its predictors with its current weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.core.mixtures import Mixtures
from thalweg.core.types import Floats32
from thalweg.engine.client_pool import ClientPool
from thalweg.federation import ClientState, ServedModels, ServerState, get_served_models
from thalweg.federation.serving import ServingState, name_predictors
from thalweg.recipes import Recipe
from thalweg.recipes.base import list_predictors
from thalweg.serving import (
    ADJUSTED,
    AVERAGED,
    LAST_LABEL,
    LATEST,
    MODEL,
    TRAINED,
    AdjustsModel,
    Serving,
)


def get_chosen_models(server: ServerState, recipe: Recipe, client_pool: ClientPool) -> ServedModels:
    """Return all models that clients serve, with the mixture of each client.

    They are the models of the bank, their averages if clients receive them, the result of each
    client's last local steps, and the model that it has adjusted to its labels. As in
    `federation.serving`, the predictors `latest` and `averaged` of a client are those of its main
    model. Clients have the newest models of the server, as in every evaluation. The last label
    predicts no sample without a predecessor, so that its weight is divided among the others. If the
    states of the clients are not in this process, the server's models are returned.
    """
    served = get_served_models(server, recipe)
    if not client_pool.states:
        return served
    assert recipe.serving is not None
    number, num_models = client_pool.world.num_clients, len(server.bank)
    if served.mixtures is None:
        usual = np.tile(served.shares, (number, 1))
    else:
        usual = served.mixtures.shared  # (N, models) how the bank mixes its models
    has_averages = AVERAGED in list_predictors(recipe)
    blocks: list[Floats32] = [server.bank, *([served.models] if has_averages else [])]
    first_own = num_models * len(blocks)
    own_models: list[Floats32] = []
    entries: list[tuple[int, int, float]] = []
    shared = np.zeros((number, first_own))
    bias, is_regression = client_pool.clients.output_bias, client_pool.clients.numbers is not None
    main_of = usual.argmax(axis=1)  # each client's latest and averaged model
    # Clients that have never taken part are equal but for their main model: there may be millions.
    unused = mix_predictors(recipe, None, usual[0] > 0, False, is_regression=is_regression)
    shared[np.arange(number), main_of] = unused[LATEST]
    if has_averages:
        shared[np.arange(number), num_models + main_of] = unused[AVERAGED]
    for client, state in sorted(client_pool.states.items()):
        mine, main, trained = shared[client], main_of[client], state.trained
        mine[:] = 0.0
        weights = mix_predictors(
            recipe,
            state,
            usual[client] > 0,
            trained is not None,
            can_adjust=bias is not None,
            is_regression=is_regression,
        )
        mine[main] += weights.pop(LATEST, 0.0)
        if has_averages:
            mine[num_models + main] += weights.pop(AVERAGED, 0.0)
        if trained is not None:
            entries.append((client, first_own + len(own_models), weights.pop(TRAINED, 0.0)))
            own_models.append(trained)
        if share := weights.pop(ADJUSTED, 0.0):
            entries.append((client, first_own + len(own_models), share))
            own_models.append(_adjust(recipe.serving, state, server.bank[main], bias))
        for name, weight in weights.items():
            mine[int(name.partition(" ")[2])] += weight
    mixtures = Mixtures.from_entries(shared, entries, first_own + len(own_models))
    default = np.zeros(mixtures.num_models)
    start = first_own - num_models  # the models that the server evaluates
    default[start:first_own] = served.shares
    models = np.concatenate([*blocks, *(own[None] for own in own_models)])
    return ServedModels(models, default, mixtures)


def _adjust(
    serving: object, state: ClientState, received: Floats32, bias: slice | None
) -> Floats32:
    """Return the received model (P,) with the client's offsets in the biases of its outputs.

    A single output is the logit of class 1, to which the difference of the offsets is added.
    """
    assert isinstance(serving, AdjustsModel)
    assert state.serving is not None
    assert bias is not None
    model, offsets = received.copy(), serving.get_offsets(state.serving.policy)
    if len(offsets):
        is_logit = bias.stop - bias.start == 1
        model[bias] += (np.diff(offsets) if is_logit else offsets).astype(np.float32)
    return model


def mix_predictors(
    recipe: Recipe,
    state: ClientState | None,
    received: npt.NDArray[np.bool_],
    has_trained: bool,
    *,
    can_adjust: bool = True,
    is_regression: bool = False,
) -> dict[str, float]:
    """Return the weights of the models of one client for a sample without a predecessor.

    `received` (models,) tells which models of the bank the client uses. It has weights for others
    from earlier rounds, which do not count. A net without biases of the outputs
    (`Net.output_bias`) cannot be adjusted (`can_adjust`); the weight of the adjusted model is then
    divided among the others.
    """
    serving = recipe.serving
    assert serving is not None
    own = _get_state(serving, state)
    names = name_predictors(recipe, own.num_models, is_regression=is_regression)
    missing = {LAST_LABEL}
    if not has_trained:
        missing.add(TRAINED)
    if not can_adjust or state is None:
        missing.add(ADJUSTED)
    available = np.array([name not in missing and _is_received(name, received) for name in names])
    weights = serving.mix(own.policy, names, available).tolist()
    return {name: weights[row] for row, name in enumerate(names) if available[row]}


def measure_weights(recipe: Recipe, client_pool: ClientPool) -> dict[str, Any]:
    """Return the mean weight of each kind of predictor over the clients that have taken part.

    Those that have predicted no sample so far count with their default.
    """
    serving = recipe.serving
    if serving is None or not client_pool.states:
        return {}
    total: dict[str, float] = {}
    is_regression = client_pool.clients.numbers is not None
    for _, state in sorted(client_pool.states.items()):  # the order of a resumed run differs
        own = _get_state(serving, state)
        names = name_predictors(recipe, own.num_models, is_regression=is_regression)
        is_known = {TRAINED: state.trained is not None, LAST_LABEL: len(own.last) > 0}
        available = np.array([is_known.get(name, True) for name in names])
        for name, weight in zip(
            names, serving.mix(own.policy, names, available).tolist(), strict=True
        ):
            kind = MODEL if name.startswith(f"{MODEL} ") else name
            total[kind] = total.get(kind, 0.0) + weight
    number = len(client_pool.states)
    return {"serving_weights": {kind: weight / number for kind, weight in total.items()}}


def _get_state(serving: Serving, state: ClientState | None) -> ServingState:
    if state is not None and state.serving is not None:
        return state.serving
    return ServingState(serving.init(), np.empty(0))


def _is_received(name: str, received: npt.NDArray[np.bool_]) -> bool:
    if not name.startswith(f"{MODEL} "):
        return True
    number = int(name.partition(" ")[2])
    return number < len(received) and bool(received[number])
