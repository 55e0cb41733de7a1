"""The server's half of a round: choose, train, weigh, merge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.errors import ConfigError, Diverged, ShapeMismatch
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, Updates
from thalweg.recipes.base import Recipe
from thalweg.recipes.federation import Federation


class ServerState(NamedTuple):
    """All that the server remembers between rounds."""

    rnd: int  # rounds played
    bank: Floats32  # (models, P)
    rules: list[Any]  # what the server rule remembers, per model
    times_here: Ints  # (N,)
    known: dict[str, Floats]  # (N,) last report of every client by name; nan: none yet


def new_server(recipe: Recipe, model: Floats32, num_clients: int) -> ServerState:
    """The server before the first round, with one model."""
    return ServerState(
        rnd=0,
        bank=model[None].copy(),
        rules=[recipe.server.init(len(model))],
        times_here=np.zeros(num_clients, dtype=np.int64),
        known={},
    )


def play_round(
    server: ServerState, federation: Federation, recipe: Recipe, seed: int
) -> tuple[ServerState, Updates | None]:
    """One round. Without a cohort the model stays as it is and the round counts all the same."""
    rnd = server.rnd
    roster = replace(federation.roster(rnd), times_here=server.times_here, known=server.known)
    cohort = _cohort(recipe, roster, seed)
    times_here = server.times_here.copy()
    times_here[roster.here] += 1
    server = server._replace(rnd=rnd + 1, times_here=times_here)
    if len(cohort) == 0:
        return server, None
    updates = federation.train([Job(client) for client in cohort.tolist()], server.bank, rnd)
    admit(updates, rnd, num_params=server.bank.shape[1])
    bank, rules = server.bank.copy(), list(server.rules)
    for model in np.unique(updates.models):
        # A client whose memory was empty has learnt nothing and has no say.
        mine = updates.only((updates.models == model) & (updates.num_steps > 0))
        if len(mine):
            weights = recipe.weights.weigh(mine, roster)
            rules[model], bank[model] = recipe.server.step(
                rules[model], bank[model], mine.deltas, weights
            )
    return server._replace(bank=bank, rules=rules, known=_learn(server, updates)), updates


def admit(updates: Updates, rnd: int, num_params: int) -> None:
    """Check updates once, at the server's door; every rule behind it may trust them."""
    if updates.deltas.shape != (len(updates), num_params):
        raise ShapeMismatch(
            f"round {rnd + 1}: the updates have shape {updates.deltas.shape}, expected "
            f"{(len(updates), num_params)}: one row per client, one column per parameter."
        )
    finite = np.isfinite(updates.deltas).all(axis=1)
    finite &= np.isfinite(updates.losses) | (updates.num_steps == 0)
    if not finite.all():
        broken = updates.clients[~finite].tolist()
        raise Diverged(
            f"round {rnd + 1}: the loss or the update of client {broken[0]}"
            + (f" (and {len(broken) - 1} more)" if len(broken) > 1 else "")
            + " is not a finite number. Try a smaller learning rate (--set local.lr=...) or less "
            "momentum; the rounds before this one are kept."
        )


def _cohort(recipe: Recipe, roster: Roster, seed: int) -> Ints:
    chosen = recipe.selection.choose(roster, rng_for(seed, Draw.SELECTION, roster.rnd))
    cohort = np.unique(chosen)
    if len(cohort) != len(chosen) or not np.isin(cohort, roster.here).all():
        raise ConfigError(
            f"{type(recipe.selection).__name__}.choose must return different clients out of the "
            f"{len(roster.here)} that are here, got {np.asarray(chosen).tolist()}."
        )
    return cohort.astype(np.int64)


def _learn(server: ServerState, updates: Updates) -> dict[str, Floats]:
    """Remember the newest report of every client that sent one."""
    known = dict(server.known)
    for name, values in updates.reports.items():
        known[name] = known.get(name, np.full(len(server.times_here), np.nan)).copy()
        known[name][updates.clients] = values
    return known
