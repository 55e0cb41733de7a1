"""Values that the server parts of policies broadcast to clients and collect from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from thalweg.core.capabilities import Broadcast
from thalweg.core.types import Floats32, Ints, Roster, Updates
from thalweg.federation.context import RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.recipes.base import Recipe
from thalweg.recipes.compatibility import iter_server_parts
from thalweg.sample_weights import AssignsWeights


class ServerParts(RoundExtension):
    """Broadcasts the values of server parts and of sample weights; collects the uploads."""

    def before_training(self, ctx: RoundContext) -> None:
        assert ctx.assignment is not None
        num_params = ctx.server.bank.shape[1]
        broadcast = build_broadcast(
            ctx.server.part_states, ctx.recipe, ctx.roster, ctx.cohort, num_params
        )
        broadcast = repeat_per_job(broadcast, ctx.cohort, ctx.assignment.clients)
        ctx.broadcast = {**ctx.broadcast, **broadcast}

    def finish_round(self, ctx: RoundContext) -> None:
        assert ctx.updates is not None
        part_states = collect_uploads(ctx.server.part_states, ctx.recipe, ctx.updates)
        ctx.server = ctx.server._replace(part_states=part_states)


def build_broadcast(
    part_states: Mapping[str, Any], recipe: Recipe, roster: Roster, cohort: Ints, num_params: int
) -> Broadcast:
    """Return the values for the cohort, with one row per client."""
    broadcast = {
        stage: {
            name: np.asarray(rows, dtype=np.float32)
            for name, rows in policy.broadcast(part_states[stage], cohort).items()
        }
        for stage, policy in iter_server_parts(recipe)
    }
    sample_weights: object = recipe.sample_weights
    if isinstance(sample_weights, AssignsWeights):
        assigned = sample_weights.assign_weights(roster, num_params)[cohort]
        broadcast["sample_weights"] = {"assigned": assigned[:, None].astype(np.float32)}
    return broadcast


def repeat_per_job(broadcast: Broadcast, cohort: Ints, clients: Ints) -> Broadcast:
    """Repeat the row of each client of the cohort for each of its jobs (J,)."""
    if len(clients) == len(cohort):
        return broadcast
    rows = np.searchsorted(cohort, clients)
    return {
        stage: {name: values[rows] for name, values in messages.items()}
        for stage, messages in broadcast.items()
    }


def collect_uploads(
    part_states: Mapping[str, Any], recipe: Recipe, updates: Updates
) -> dict[str, Any]:
    """Return the states of the server parts after the uploads.

    Late uploads count in full, because they describe the client and not the model. If a client
    sent several rows, they are collected in the order in which it trained. A memory uploads once
    per round, even if its client trained several models.
    """
    part_states = dict(part_states)
    for stage, policy in iter_server_parts(recipe):
        received = updates if stage == "objective" else _one_row_per_round(updates)
        for rows in _group_rows(received.clients):
            if uploads := select_uploads(received, stage, rows):
                part_states[stage] = policy.collect(
                    part_states[stage], received.clients[rows], uploads
                )
    return part_states


def select_uploads(updates: Updates, stage: str, rows: Ints | slice) -> dict[str, Floats32]:
    """Return the uploads of one stage by name, for some rows."""
    return {
        name.removeprefix(f"{stage}."): values[rows]
        for name, values in updates.uploads.items()
        if name.startswith(f"{stage}.")
    }


def _one_row_per_round(updates: Updates) -> Updates:
    """Keep the last row of each client and round, whatever the number of models it trained."""
    trained_in = np.zeros(len(updates)) if updates.trained_in is None else updates.trained_in
    is_next = (np.diff(updates.clients) != 0) | (np.diff(trained_in) != 0)
    return updates.only(np.append(is_next, True)[: len(updates)])


def _group_rows(clients: Ints) -> list[Ints | slice]:
    """Group rows so that no group has a client twice; the last group has each client's last row.

    >>> [rows.tolist() for rows in _group_rows(np.array([0, 3, 3, 3, 5, 5]))]
    [[1], [2, 4], [0, 3, 5]]
    """
    groups: list[Ints | slice] = []
    rows = np.arange(len(clients))
    while len(rows):
        is_last = np.append(clients[rows][1:] != clients[rows][:-1], True)
        # A slice makes no copy, and uploads may be as large as the models.
        groups.insert(0, slice(None) if is_last.all() and not groups else rows[is_last])
        rows = rows[~is_last]
    return groups
