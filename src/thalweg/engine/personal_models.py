"""The models that clients keep themselves, and the names of clients, for results of a run."""

from __future__ import annotations

import numpy as np

from thalweg.core.mixtures import Mixtures
from thalweg.core.types import Floats32
from thalweg.data import Dataset
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.plan import Plan
from thalweg.federation import ServedModels
from thalweg.streams import Replay


def add_personal_models(served: ServedModels, client_pool: ClientPool) -> ServedModels:
    """Return the served models followed by those that clients keep, each used by its client.

    A client keeps the model that it trained last (`bank.FineTuned`), or its own values of a part
    of the model (``net.buffers=local``). Without such clients the served models are returned.
    """
    number, num_served = client_pool.world.num_clients, len(served.models)
    if served.mixtures is None:
        shared = np.zeros((number, num_served))
        shared[:, int(served.shares.argmax())] = 1.0
    else:
        shared = served.mixtures.shared.copy()
    personal: dict[int, Floats32] = {}
    own_positions = client_pool.clients.own_positions
    for client, state in sorted(client_pool.states.items()):
        if state.trained is not None:
            personal[client] = state.trained
        elif own_positions is not None and state.own is not None:
            params = served.models[int(shared[client].argmax())].copy()
            params[own_positions] = state.own
            personal[client] = params
    if not personal:
        return served
    clients = np.array(list(personal), dtype=np.int64)
    shared[clients] = 0.0
    models = num_served + np.arange(len(personal))
    return ServedModels(
        np.concatenate([served.models, np.stack(list(personal.values()))]),
        np.concatenate([served.shares, np.zeros(len(personal))]),
        Mixtures(shared, clients, models, np.ones(len(personal)), num_served + len(personal)),
    )


def list_clients(plan: Plan, data: Dataset, num_clients: int) -> tuple[str, ...]:
    """Return the names of the clients of a run; their numbers if the data do not name them."""
    if isinstance(plan.scenario.world, Replay) and len(data.client_names) >= num_clients:
        return data.client_names[:num_clients]
    return tuple(map(str, range(num_clients)))
