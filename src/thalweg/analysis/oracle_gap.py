"""Cost of imperfect forecasts: Theorem 2 of SFedPO with the numbers of one run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from thalweg import theory
from thalweg.aggregation import WEIGHTS, ShiftAware
from thalweg.core.config import kind_of
from thalweg.core.errors import ConfigError, RunError
from thalweg.core.types import Outlook
from thalweg.data import Dataset
from thalweg.engine.builders import make_client_pool
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.loop import check_same_data, compute_fingerprint
from thalweg.engine.manifest import list_rounds
from thalweg.engine.plan import Plan, read_plan
from thalweg.engine.run_folder import RunFolder
from thalweg.engine.task import make_net
from thalweg.forecast import Forecast, RecognisesStates
from thalweg.memory import POLICIES, Dds
from thalweg.recipes import Recipe


def oracle_gap(
    run: Plan | str | os.PathLike[str], *, data_dir: str | os.PathLike[str] | None = None
) -> theory.OracleGap:
    """`theory.oracle_gap` with the true probabilities, predictions, ratios and weights of a run.

    `run` is a run folder (finished or not; its last checkpoint is used and the folder is not
    changed) or a plan, for the predictions before the first round. Clients that have not
    participated have their initial predictions. Availability is that of the world over all
    sessions, also if the weights estimate it. Ratios are those of the whole budget; in a world with
    fewer arrivals per tick than the memory holds (``world.arrivals``) a client may renew less.
    """
    folder = None if isinstance(run, Plan) else _folder(Path(run))
    plan = run if isinstance(run, Plan) else read_plan(Path(run))
    memory, weights = _parts(plan.recipe)
    data = plan.scenario.data.load(None if data_dir is None else Path(data_dir), plan.seed)
    client_pool = make_client_pool(plan, data, _num_params(plan, data))
    _check_forecast(client_pool.clients.forecast)
    if folder is not None:
        server, states = folder.read_checkpoint()
        fingerprint = compute_fingerprint(data, client_pool)
        check_same_data(folder, server["data"], fingerprint, plan.scenario)
        client_pool.restore(states)
    world = client_pool.world
    who = np.flatnonzero(
        client_pool.availability
    )  # the other clients are not members of any session
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
        raise RunError(f"{path} is not a run folder; give the folder to which the run was written.")
    if not list_rounds(path):
        raise RunError(f"{path} contains no checkpoint: no round of this run is finished.")
    return RunFolder(path)


def _parts(recipe: Recipe) -> tuple[Dds, ShiftAware]:
    """The two modules that use the forecast; the theorem needs both."""
    memory, weights = recipe.memory, recipe.weights
    if not isinstance(memory, Dds) or not isinstance(weights, ShiftAware):
        raise ConfigError(
            "the oracle gap is defined for memory=dds with weights=shift-aware; this run has "
            f"memory={kind_of(memory, POLICIES)} with weights={kind_of(weights, WEIGHTS)}. Run "
            "sfedpo without replacing these two."
        )
    if memory.exact or weights.exact:
        part = "memory" if memory.exact else "weights"
        raise ConfigError(
            f"the oracle gap uses the closed forms, but this run has {part}.exact=true."
        )
    return memory, weights


def _check_forecast(forecast: Forecast) -> None:
    if isinstance(forecast, RecognisesStates):
        raise ConfigError(
            f"{type(forecast).__name__} learns its own states, which cannot be compared with the "
            "world's; use exact, noisy or bayesian."
        )


def _outlooks(client_pool: ClientPool) -> list[Outlook]:
    """The current outlook of every client."""
    clients, world = client_pool.clients, client_pool.world
    outlooks = []
    for client in range(world.num_clients):
        state = client_pool.states.get(client) or clients.new_client(client)
        outlooks.append(
            clients.forecast.outlook(
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
            "the oracle gap needs the same importance and heterogeneity of the states for all "
            f"clients; {type(clients.forecast).__name__} has different ones."
        )
    return outlooks


def _num_params(plan: Plan, data: Dataset) -> int:
    return make_net(plan.scenario, data).num_params
