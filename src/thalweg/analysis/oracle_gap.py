"""What a run's own forecasts cost: Theorem 2 of SFedPO with the numbers of one run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from thalweg import theory
from thalweg.aggregation import ShiftAware
from thalweg.core.errors import ConfigError, RunError
from thalweg.core.types import Outlook
from thalweg.data import Dataset
from thalweg.engine.builders import make_client_pool
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.loop import check_same_data, compute_fingerprint
from thalweg.engine.plan import Plan, read_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.forecast import RecognisesStates
from thalweg.memory import Dds
from thalweg.recipes import Recipe


def oracle_gap(
    run: Plan | str | os.PathLike[str], *, data_dir: str | os.PathLike[str] | None = None
) -> theory.OracleGap:
    """`theory.oracle_gap` with a run's own truth, predictions, ratios and weights.

    `run` is a run's folder, finished or not (its last checkpoint counts, and nothing in the folder
    is changed), or a plan, for what the clients believe before the first round. A client that has not
    come yet believes what it would at first. Availability is the world's own, over all sessions, also
    where the weights estimate it. Ratios are those of the whole budget: in a world
    where less than a memory arrives per tick (``world.arrivals``) a client may renew less.
    """
    folder = None if isinstance(run, Plan) else _folder(Path(run))
    plan = run if isinstance(run, Plan) else read_plan(Path(run))
    memory, weights = _parts(plan.recipe)
    data = plan.scenario.data.load(None if data_dir is None else Path(data_dir), plan.seed)
    client_pool = make_client_pool(plan, data, _num_params(plan, data))
    if folder is not None:
        server, states = folder.read_checkpoint()
        check_same_data(folder, server["data"], compute_fingerprint(data, client_pool))
        client_pool.restore(states)
    world = client_pool.world
    who = np.flatnonzero(client_pool.availability)  # the others are members of no session
    outlooks = _outlooks(client_pool)
    signatures = world.state_table.signatures
    return theory.oracle_gap(
        np.stack([world.true_state_probs(client) for client in who.tolist()]),
        np.stack([outlooks[client].probs for client in who.tolist()]),
        outlooks[0].importance,
        outlooks[0].heterogeneity,
        memory.budget,
        client_pool.availability[who],
        world.ticks,
        dds_slope=memory.slope,
        dds_offset=memory.offset,
        saw_slope=weights.slope,
        saw_offset=weights.offset,
        grad_bound=weights.grad_bound,
        noise=weights.noise,
        zero_prob_rule=memory.zero_prob_rule,
        gram=signatures @ signatures.T if weights.mismatch == "kme" else None,
    )


def _folder(path: Path) -> RunFolder:
    if not path.is_dir():
        raise RunError(f"{path} is not a run's folder; give the one that the run was written to.")
    if not (path / "checkpoint" / "server.safetensors").exists():
        raise RunError(f"{path} holds no checkpoint: no round of this run is finished yet.")
    return RunFolder(path)


def _parts(recipe: Recipe) -> tuple[Dds, ShiftAware]:
    """The two modules that believe the forecast; without both the theorem says nothing."""
    memory, weights = recipe.memory, recipe.weights
    if not isinstance(memory, Dds) or not isinstance(weights, ShiftAware):
        raise ConfigError(
            "the oracle's gap is defined for memory=dds with weights=shift-aware; this run has "
            f"{type(memory).__name__} with {type(weights).__name__}, which do not both ask the "
            "oracle. Run sfedpo without replacing these two."
        )
    if memory.exact or weights.exact:
        part = "memory" if memory.exact else "weights"
        raise ConfigError(
            f"the oracle's gap is computed with the closed forms, and this run has {part}.exact=true."
        )
    if isinstance(recipe.forecast, RecognisesStates):
        raise ConfigError(
            f"{type(recipe.forecast).__name__} predicts states of its own, which cannot be compared "
            "with the world's; use exact, noisy or bayesian."
        )
    return memory, weights


def _outlooks(client_pool: ClientPool) -> list[Outlook]:
    """What every client expects now."""
    clients, world = client_pool.clients, client_pool.world
    outlooks = []
    for client in range(world.num_clients):
        state = client_pool.states.get(client) or clients.new_client(client)
        outlooks.append(
            clients.recipe.forecast.outlook(
                state.forecast, world.state_table.histograms, world.state_table.importance
            )
        )
    first = outlooks[0]
    if any(
        not np.array_equal(mine.importance, first.importance)
        or not np.array_equal(mine.heterogeneity, first.heterogeneity)
        for mine in outlooks
    ):
        raise ConfigError(
            "the oracle's gap needs the same importance and heterogeneity of the states for all "
            f"clients; {type(clients.recipe.forecast).__name__} has different ones."
        )
    return outlooks


def _num_params(plan: Plan, data: Dataset) -> int:
    return plan.scenario.net.build(data.input_shape, data.num_classes).num_params
