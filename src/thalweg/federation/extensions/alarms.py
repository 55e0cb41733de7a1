"""The server's half of an alarm: it watches what clients send, and lets follow what the recipe wants.

An alarm that is raised in a round acts when its client takes part the next time. It acts once: an order that is
lost on a network is not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, Updates
from thalweg.drift import Alarm
from thalweg.drift.base import Bools, WatchedMetric
from thalweg.recipes.base import Recipe


class AlarmState(NamedTuple):
    """What the server remembers of alarms."""

    detector_state: Any  # what the alarm remembers of the clients' numbers
    is_pending: Bools  # (N,) was one raised since the client last took part?
    lr_rounds_left: Ints  # (N,) rounds of the client for which its learning rate is another one


def init_alarms(recipe: Recipe, num_clients: int) -> AlarmState | None:
    """Before the first round; none if the recipe has no alarm."""
    if recipe.alarm is None:
        return None
    nobody = np.zeros(num_clients, dtype=bool)
    return AlarmState(recipe.alarm.init(num_clients), nobody, nobody.astype(np.int64))


def add_alarmed_clients(roster: Roster, state: AlarmState | None, recipe: Recipe) -> Roster:
    """The roster, with the clients whose alarm is for the bank to do something about."""
    if state is None or not recipe.effect.reclusters:
        return roster
    return replace(roster, alarmed=np.flatnonzero(state.is_pending))


def act_on_alarms(
    state: AlarmState | None, recipe: Recipe, jobs: list[Job], broadcast: Broadcast
) -> tuple[AlarmState | None, list[Job], Broadcast]:
    """What alarms change for the clients that are about to train: the pace of their jobs, what they are told."""
    if state is None:
        return None, jobs, broadcast
    effect, clients = recipe.effect, np.array([job.client for job in jobs], dtype=np.int64)
    is_pending, lr_rounds_left = state.is_pending, state.lr_rounds_left.copy()
    lr_rounds_left[clients[is_pending[clients]]] = len(effect.lr_scales)
    # A one behind them, for those that are not in a hurry.
    lr_scales = np.array([*effect.lr_scales, 1.0])[len(effect.lr_scales) - lr_rounds_left[clients]]
    jobs = [
        job._replace(lr_scale=job.lr_scale * lr_scale)
        for job, lr_scale in zip(jobs, lr_scales.tolist(), strict=True)
    ]
    if words := _build_messages(recipe, is_pending[clients]):
        broadcast = {**broadcast, "alarm": words}
    is_pending = is_pending.copy()
    is_pending[clients] = False
    trained = np.unique(clients)
    lr_rounds_left[trained] = np.maximum(lr_rounds_left[trained] - 1, 0)
    return AlarmState(state.detector_state, is_pending, lr_rounds_left), jobs, broadcast


def update_alarms(
    state: AlarmState | None, recipe: Recipe, updates: Updates, rnd: int
) -> tuple[AlarmState | None, dict[str, Any]]:
    """What the server knows after round `rnd`, and for the metrics whose alarm was raised, if anybody's."""
    if state is None or recipe.alarm is None:
        return state, {}
    detector_state, is_pending, raised = state.detector_state, state.is_pending.copy(), []
    trained_in = rnd - updates.staleness(rnd)
    for then in np.unique(trained_in).tolist():  # late ones first, in the order of what happened
        clients, values = collect_watched(updates, trained_in == then, recipe.alarm.watch)
        if len(clients):
            detector_state, alarmed = recipe.alarm.update(detector_state, clients, values)
            _check(alarmed, clients, recipe.alarm)
            is_pending[clients[alarmed]] = True
            raised += clients[alarmed].tolist()
    said = {"alarms": sorted(set(raised))} if raised else {}
    return AlarmState(detector_state, is_pending, state.lr_rounds_left), said


def collect_watched(updates: Updates, rows: Bools, watch: WatchedMetric) -> tuple[Ints, Floats]:
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


def _build_messages(recipe: Recipe, is_pending: Bools) -> Mapping[str, Floats32]:
    """(K, 1) what clients are told: to which share of itself a memory shrinks, and whether a state is opened."""
    effect, words = recipe.effect, {}
    if effect.keep < 1:
        words["shrink"] = np.where(is_pending, effect.keep, 1.0)
    if effect.opens_state:
        words["open"] = is_pending
    return {
        name: column[:, None].astype(np.float32)
        for name, column in words.items()
        if is_pending.any()
    }


def _check(alarmed: Bools, clients: Ints, alarm: Alarm) -> None:
    """An alarm of the user's own may be wrong."""
    if np.shape(alarmed) != clients.shape or np.asarray(alarmed).dtype != bool:
        raise ConfigError(
            f"{type(alarm).__name__}.update must say yes or no for each of {len(clients)} clients, got "
            f"{np.asarray(alarmed).dtype} of shape {np.shape(alarmed)}."
        )
