"""The server's half of an alarm: it watches what clients send, and lets follow what the recipe wants.

An alarm that is raised in a round acts when its client takes part the next time. It acts once: an order that is
lost on a network is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.talk import Told
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, Updates
from thalweg.drift import Alarm
from thalweg.drift.base import Bools, Watched
from thalweg.recipes.base import Recipe


class AlarmState(NamedTuple):
    """What the server remembers of alarms."""

    watching: Any  # what the alarm remembers of the clients' numbers
    is_due: Bools  # (N,) was one raised since the client last took part?
    hurried_for: Ints  # (N,) rounds of the client for which its learning rate is another one


def begin_watching(recipe: Recipe, num_clients: int) -> AlarmState | None:
    """Before the first round; none if the recipe has no alarm."""
    if recipe.alarm is None:
        return None
    nobody = np.zeros(num_clients, dtype=bool)
    return AlarmState(recipe.alarm.init(num_clients), nobody, nobody.astype(np.int64))


def with_alarmed(roster: Roster, state: AlarmState | None, recipe: Recipe) -> Roster:
    """The roster, with the clients whose alarm is for the bank to do something about."""
    if state is None or not recipe.effect.reclusters:
        return roster
    return replace(roster, alarmed=np.flatnonzero(state.is_due))


def begin_acting(
    state: AlarmState | None, recipe: Recipe, jobs: list[Job], told: Told
) -> tuple[AlarmState | None, list[Job], Told]:
    """What alarms change for the clients that are about to train: the pace of their jobs, what they are told."""
    if state is None:
        return None, jobs, told
    effect, clients = recipe.effect, np.array([job.client for job in jobs], dtype=np.int64)
    is_due, hurried_for = state.is_due, state.hurried_for.copy()
    hurried_for[clients[is_due[clients]]] = len(effect.paces)
    # A one behind them, for those that are not in a hurry.
    paces = np.array([*effect.paces, 1.0])[len(effect.paces) - hurried_for[clients]]
    jobs = [
        job._replace(pace=job.pace * pace) for job, pace in zip(jobs, paces.tolist(), strict=True)
    ]
    if words := _words(recipe, is_due[clients]):
        told = {**told, "alarm": words}
    is_due = is_due.copy()
    is_due[clients] = False
    trained = np.unique(clients)
    hurried_for[trained] = np.maximum(hurried_for[trained] - 1, 0)
    return AlarmState(state.watching, is_due, hurried_for), jobs, told


def watched(
    state: AlarmState | None, recipe: Recipe, updates: Updates, rnd: int
) -> tuple[AlarmState | None, dict[str, Any]]:
    """What the server knows after round `rnd`, and for the metrics whose alarm was raised, if anybody's."""
    if state is None or recipe.alarm is None:
        return state, {}
    watching, is_due, raised = state.watching, state.is_due.copy(), []
    trained_in = rnd - updates.staleness(rnd)
    for then in np.unique(trained_in).tolist():  # late ones first, in the order of what happened
        clients, values = numbers(updates, trained_in == then, recipe.alarm.watch)
        if len(clients):
            watching, alarmed = recipe.alarm.update(watching, clients, values)
            _check(alarmed, clients, recipe.alarm)
            is_due[clients[alarmed]] = True
            raised += clients[alarmed].tolist()
    said = {"alarms": sorted(set(raised))} if raised else {}
    return AlarmState(watching, is_due, state.hurried_for), said


def numbers(updates: Updates, rows: Bools, watch: Watched) -> tuple[Ints, Floats]:
    """(K,) clients that have something to watch in these rows (a mask), ascending, and (K,) their numbers.

    The error is that of the arriving samples which were tested; the loss is the mean over the models that the
    client trained.
    """
    if watch == "error":
        totals = (updates.num_tested - updates.num_correct).astype(np.float64)
        over = updates.num_tested
    else:
        totals, over = updates.losses, np.minimum(updates.num_steps, 1)
    rows = rows & (over > 0)
    clients, whose = np.unique(updates.clients[rows], return_inverse=True)
    sums, parts = np.bincount(whose, weights=totals[rows]), np.bincount(whose, weights=over[rows])
    return clients.astype(np.int64), sums / parts


def _words(recipe: Recipe, is_due: Bools) -> Mapping[str, Floats32]:
    """(K, 1) what clients are told: to which share of itself a memory shrinks, and whether a state is opened."""
    effect, words = recipe.effect, {}
    if effect.keep < 1:
        words["shrink"] = np.where(is_due, effect.keep, 1.0)
    if effect.opens_state:
        words["open"] = is_due
    return {
        name: column[:, None].astype(np.float32) for name, column in words.items() if is_due.any()
    }


def _check(alarmed: Bools, clients: Ints, alarm: Alarm) -> None:
    """An alarm of the user's own may be wrong."""
    if np.shape(alarmed) != clients.shape or np.asarray(alarmed).dtype != bool:
        raise ConfigError(
            f"{type(alarm).__name__}.update must say yes or no for each of {len(clients)} clients, got "
            f"{np.asarray(alarmed).dtype} of shape {np.shape(alarmed)}."
        )
