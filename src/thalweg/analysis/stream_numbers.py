"""Quantities of the data-streams theory for one run, from the run's weights and gradients."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from thalweg import theory
from thalweg.aggregation import WEIGHTS, ByWeight
from thalweg.core.config import kind_of
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats, Floats32, Ints, Updates
from thalweg.engine.builders import apply_views, make_federation, make_initial_model
from thalweg.engine.client_pool import ClientPool
from thalweg.engine.gather import Gather
from thalweg.engine.plan import Plan, read_plan
from thalweg.engine.stacked import StackedTrainer
from thalweg.engine.task import make_net
from thalweg.federation import new_server, run_server_round


@dataclass(frozen=True)
class StreamNumbers:
    """Use of the samples in a run, and how well its gradients represent all samples."""

    rounds: int  # rounds that were measured
    num_samples: int  # different samples with positive weight
    effective_samples: float  # equivalent number of equally weighted samples
    historical_mass: float  # share of the clients with stored data in the objective
    gradient_variability: float


ProgressCallback = Callable[
    [int, int], None
]  # called with the number of finished steps and the total


class _RoundRecord(NamedTuple):
    model: Floats32  # before the round
    total: float  # total weight of all memories
    rows: Ints  # in all memories
    weights: Floats  # of these rows, as shares of `total`
    historical: float  # share of the clients with stored data


def stream_numbers(
    run: Plan | str | os.PathLike[str],
    *,
    rounds: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    watch: ProgressCallback | None = None,
) -> StreamNumbers:
    r"""Repeat a run and measure it; `run` is a plan, or a run folder, which is not changed.

    .. math::  \sum_t q^{(t)} \Big\lVert \nabla L_S(\theta^{(t)}) -
               \sum_m p_m^{(t)} \nabla L_{\text{memory}_m}(\theta^{(t)}) \Big\rVert^2

    :math:`L_S` is the loss of all samples with positive weight in these rounds, each with its total
    weight. The value is zero if every round represents the whole. The cost is one pass over all
    samples per round. `watch` is called with the progress in steps: every round is run and then
    measured.
    """
    plan = run if isinstance(run, Plan) else read_plan(Path(run))
    if not isinstance(plan.recipe.weights, ByWeight):
        raise ConfigError(
            "the data-streams theory needs clients that are weighted by their samples "
            f"(weights=by-weight); this run has weights={kind_of(plan.recipe.weights, WEIGHTS)}. "
            "Run stream-ours without replacing them."
        )
    require(rounds is None or rounds >= 1, f"rounds must be at least 1, got {rounds}.")
    folder = None if data_dir is None else Path(data_dir)
    data = plan.scenario.data.load(folder, plan.seed)
    net = make_net(plan.scenario, data)
    federation = make_federation(plan, data, net, workers=1)
    data = apply_views(data, federation.client_pool.world)
    server = new_server(
        plan.recipe,
        make_initial_model(plan, net, folder),
        federation.client_pool.world.num_clients,
    )
    played: list[_RoundRecord] = []
    number = min(rounds or plan.scenario.rounds, plan.scenario.rounds)
    report_progress = watch or (lambda done, steps: None)
    try:
        for each in range(number):
            report_progress(each, 2 * number)
            model = server.bank[0].copy()
            server, updates = run_server_round(server, federation, plan.recipe, plan.seed)
            if updates is not None and updates.reports["total_weight"].sum() > 0:
                played.append(_record_round(federation.client_pool, updates, model, server.rnd - 1))
    finally:
        federation.close()
    require(len(played) > 0, "no client had a sample with positive weight in these rounds.")
    trainer = StackedTrainer(net, plan.recipe.objective, plan.local, Gather(data))
    return _measure(played, trainer, data.num_rows("train"), report_progress)


def _record_round(
    client_pool: ClientPool, updates: Updates, model: Floats32, rnd: int
) -> _RoundRecord:
    """The contents and weights of the memories in a round."""
    totals = updates.reports["total_weight"]
    rows, weights, stored = [], [], 0.0
    for client, total in zip(updates.clients.tolist(), totals.tolist(), strict=True):
        state = client_pool.states[client]
        mine = client_pool.clients.compute_sample_weights(
            state.rows.astype(np.int64), state.since, rnd
        )
        rows.append(state.rows.astype(np.int64))
        weights.append(total * mine / mine.sum() if total else np.zeros(len(mine)))
        stored += total * client_pool.world.supply(client).is_historical
    whole = float(totals.sum())
    return _RoundRecord(
        model, whole, np.concatenate(rows), np.concatenate(weights) / whole, stored / whole
    )


def _measure(
    played: list[_RoundRecord],
    trainer: StackedTrainer,
    num_rows: int,
    report_progress: ProgressCallback,
) -> StreamNumbers:
    totals = np.array([each.total for each in played])
    q = totals / totals.sum()  # (T,)
    importance = np.zeros(num_rows)  # total weight of every sample
    for share, each in zip(q, played, strict=True):
        np.add.at(importance, each.rows, share * each.weights)
    used = np.flatnonzero(importance)
    whole, parts = [], []
    for done, each in enumerate(played, start=len(played)):
        report_progress(done, 2 * len(played))
        whole.append(trainer.gradient(each.model, used, importance[used]))
        parts.append(trainer.gradient(each.model, each.rows, each.weights))
    return StreamNumbers(
        rounds=len(played),
        num_samples=len(used),
        effective_samples=theory.effective_samples(importance[used]),
        historical_mass=float(q @ [each.historical for each in played]),
        gradient_variability=theory.gradient_variability(q, np.array(whole), np.array(parts)),
    )
