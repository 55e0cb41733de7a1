"""Latent states of a plan: their classes, who reaches them, and how much a memory renews in them.

These are the numbers of Figures 4, 5 and 6 of SFedPO. They follow from the plan; nothing is
trained.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thalweg.core.errors import require
from thalweg.core.types import Floats, Ints
from thalweg.engine.builders import make_client_pool
from thalweg.engine.plan import Plan
from thalweg.engine.task import make_net
from thalweg.forecast import RecognisesStates
from thalweg.memory import PredictsRenewal, make_context
from thalweg.streams.latent import LatentWorld


class LatentStateNumbers(NamedTuple):
    """M states, C classes and N clients."""

    counts: Ints  # (M, C) training samples of each class in each state
    clusters: Ints  # (M,) number of each state's cluster
    concentrations: Floats  # (clusters,) Dirichlet parameter of each cluster
    heterogeneity: Floats  # (M,) distance of each state's classes from balanced classes
    probs: Floats  # (N, M) true probability that a client is in a state
    ratios: Floats  # (N, M) share of its memory that a client renews in a tick in a state


def latent_states(
    plan: Plan, *, data_dir: str | os.PathLike[str] | None = None
) -> LatentStateNumbers:
    """Return the latent states of a plan, and the renewal that its memory policy predicts.

    The predictions are those before the first round. The memory is full.
    """
    data = plan.scenario.data.load(None if data_dir is None else Path(data_dir), plan.seed)
    client_pool = make_client_pool(plan, data, make_net(plan.scenario, data).num_params)
    world, clients = client_pool.world, client_pool.clients
    require(
        isinstance(world, LatentWorld),
        f"{plan.scenario.name} has no known latent states (its world is "
        f"{type(world).__name__}). Choose a scenario with world=latent-states and without drift, "
        "such as digits-partial.",
    )
    assert isinstance(world, LatentWorld)
    memory, forecast = plan.recipe.memory, clients.forecast
    require(
        isinstance(memory, PredictsRenewal),
        f"memory={type(memory).__name__} does not predict how much it renews. Use memory=dds or "
        "uniform-ratio.",
    )
    require(
        not isinstance(forecast, RecognisesStates),
        f"forecast={type(forecast).__name__} defines states of its own. Use forecast=exact, noisy "
        "or bayesian.",
    )
    assert isinstance(memory, PredictsRenewal)
    table, ratios = world.state_table, []
    for client in range(world.num_clients):
        state = client_pool.state(client)
        outlook = clients.make_outlook(state.forecast)
        capacity = world.capacity(client)
        context = make_context(capacity, capacity, world.arrival_size, outlook=outlook)
        ratios.append(memory.predict_renewal(state.memory, context))
    sizes = np.array([len(pool) for pool in world.pools])
    return LatentStateNumbers(
        counts=np.rint(table.histograms * sizes[:, None]).astype(np.int64),
        clusters=np.arange(table.num_states) // world.spec.states_per_cluster,
        concentrations=np.array(world.spec.clusters),
        heterogeneity=outlook.heterogeneity,
        probs=np.stack([world.true_state_probs(n) for n in range(world.num_clients)]),
        ratios=np.stack(ratios),
    )
