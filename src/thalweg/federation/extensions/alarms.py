"""Drift alarms: the server watches the loss or error of each client.

An alarm that is raised in a round takes effect in the next round in which its client takes part. It
takes effect once: if the request is lost on a network, it is not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.aggregation import RestartsOnAlarms
from thalweg.core.capabilities import Broadcast
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, Updates
from thalweg.drift import Alarm
from thalweg.drift.base import Bools, WatchedMetric
from thalweg.evaluation.numbers import compute_abs_errors
from thalweg.federation.client_state import ClientProgram, ClientState, Rows
from thalweg.federation.extensions.base import RoundExtension
from thalweg.forecast import OpensStates
from thalweg.memory.base import round_count
from thalweg.recipes.base import Recipe
from thalweg.serving import RestartsServing

if TYPE_CHECKING:
    from thalweg.federation.context import ClientContext, RoundContext


class AlarmState(NamedTuple):
    """State of alarms at the server."""

    detector_state: Any  # the state of the alarm policy
    is_pending: Bools  # (N,) an alarm was raised since the client last took part
    lr_rounds_left: Ints  # (N,) rounds of the client in which its learning rate is still scaled


# --- the server part ---


class Alarms(RoundExtension):
    """Watches the updates of clients, and applies the effects of alarms to their jobs."""

    def is_used_by(self, recipe: Recipe) -> bool:
        return recipe.alarm is not None

    def start_round(self, ctx: RoundContext) -> None:
        ctx.roster = add_alarmed_clients(ctx.roster, ctx.server.alarm, ctx.recipe)

    def before_training(self, ctx: RoundContext) -> None:
        assert ctx.server.alarm is not None
        alarm, ctx.jobs, ctx.broadcast = act_on_alarms(
            ctx.server.alarm, ctx.recipe, ctx.jobs, ctx.broadcast
        )
        ctx.server = ctx.server._replace(alarm=alarm)

    def after_training(self, ctx: RoundContext) -> None:
        assert ctx.server.alarm is not None
        assert ctx.updates is not None
        alarm, raised = update_alarms(ctx.server.alarm, ctx.recipe, ctx.updates, ctx.rnd)
        ctx.server = ctx.server._replace(alarm=alarm)
        ctx.alarmed = np.array(raised, dtype=np.int64)
        if raised:
            ctx.extra_metrics["alarms"] = raised

    def finish_round(self, ctx: RoundContext) -> None:
        note_alarms(ctx)


def init_alarms(recipe: Recipe, num_clients: int) -> AlarmState | None:
    """Return the state before the first round; none if the recipe has no alarm."""
    if recipe.alarm is None:
        return None
    no_clients = np.zeros(num_clients, dtype=bool)
    return AlarmState(recipe.alarm.init(num_clients), no_clients, no_clients.astype(np.int64))


def add_alarmed_clients(roster: Roster, state: AlarmState | None, recipe: Recipe) -> Roster:
    """Add the clients with a pending alarm to the roster, if the bank handles alarms."""
    if state is None or not recipe.effect.reclusters:
        return roster
    return replace(roster, alarmed=np.flatnonzero(state.is_pending))


def act_on_alarms(
    state: AlarmState, recipe: Recipe, jobs: list[Job], broadcast: Broadcast
) -> tuple[AlarmState, list[Job], Broadcast]:
    """Scale the learning rates of clients with a pending alarm; broadcast the alarm to them."""
    if not (state.is_pending.any() or state.lr_rounds_left.any()):
        return state, jobs, broadcast
    effect, clients = recipe.effect, np.array([job.client for job in jobs], dtype=np.int64)
    is_pending, lr_rounds_left = state.is_pending, state.lr_rounds_left.copy()
    lr_rounds_left[clients[is_pending[clients]]] = len(effect.lr_scales)
    # The last entry, 1, is for clients without an alarm.
    lr_scales = np.array([*effect.lr_scales, 1.0])[len(effect.lr_scales) - lr_rounds_left[clients]]
    jobs = [
        job._replace(lr_scale=job.lr_scale * lr_scale)
        for job, lr_scale in zip(jobs, lr_scales.tolist(), strict=True)
    ]
    if messages := _build_messages(recipe, is_pending[clients]):
        broadcast = {**broadcast, "alarm": messages}
    is_pending = is_pending.copy()
    is_pending[clients] = False
    trained = np.unique(clients)
    lr_rounds_left[trained] = np.maximum(lr_rounds_left[trained] - 1, 0)
    return AlarmState(state.detector_state, is_pending, lr_rounds_left), jobs, broadcast


def update_alarms(
    state: AlarmState, recipe: Recipe, updates: Updates, rnd: int
) -> tuple[AlarmState, list[int]]:
    """Return the state after round `rnd`, and the clients whose alarm was raised, ascending."""
    assert recipe.alarm is not None
    detector_state, is_pending, raised = state.detector_state, state.is_pending.copy(), []
    trained_in = rnd - updates.staleness(rnd)
    for then in np.unique(trained_in).tolist():  # oldest first, as the clients trained
        clients, values = collect_watched(updates, trained_in == then, recipe.alarm.watch)
        if len(clients):
            detector_state, alarmed = recipe.alarm.update(detector_state, clients, values)
            _check(alarmed, clients, recipe.alarm)
            is_pending[clients[alarmed]] = True
            raised += clients[alarmed].tolist()
    alarm_state = AlarmState(detector_state, is_pending, state.lr_rounds_left)
    return alarm_state, sorted(set(raised))


def note_alarms(ctx: RoundContext) -> None:
    """Pass the alarms of a round to the server rules of the models that the clients trained."""
    rule, updates, rules = ctx.recipe.server, ctx.updates, list(ctx.server.rules)
    if not isinstance(rule, RestartsOnAlarms) or updates is None:
        return
    for model in np.unique(updates.models).tolist():
        clients = np.unique(updates.clients[updates.models == model])
        is_alarmed = np.zeros(len(clients), dtype=bool)
        if len(ctx.alarmed):
            is_alarmed = np.isin(clients, ctx.alarmed)
        rules[model], decision = rule.note_alarms(rules[model], clients, is_alarmed)
        if decision is not None:
            decisions = ctx.extra_metrics.setdefault("decisions", [])
            decisions.append({**decision, "model": model} if len(rules) > 1 else decision)
    ctx.server = ctx.server._replace(rules=rules)


def collect_watched(updates: Updates, rows: Bools, watch: WatchedMetric) -> tuple[Ints, Floats]:
    """Return (K,) clients, ascending, and (K,) the watched metric of each, for a mask of rows.

    The error is the share of tested arriving samples with a wrong prediction; in a regression the
    mean absolute error. The loss is the mean
    over the models that the client trained. Clients without a tested sample (or a step) are left
    out. Counts are (K, 3): wrong predictions, predictions, and the loss; nan without a step.
    """
    if watch == "counts":
        return _collect_counts(updates, rows)
    if watch == "error" and updates.error_sums is not None:
        totals, counts = updates.error_sums, updates.num_tested
    elif watch == "error":
        totals = (updates.num_tested - updates.num_correct).astype(np.float64)
        counts = updates.num_tested
    else:
        totals, counts = updates.losses, np.minimum(updates.num_steps, 1)
    rows = rows & (counts > 0)
    clients, owners = np.unique(updates.clients[rows], return_inverse=True)
    sums = np.bincount(owners, weights=totals[rows])
    return clients.astype(np.int64), sums / np.bincount(owners, weights=counts[rows])


def _collect_counts(updates: Updates, rows: Bools) -> tuple[Ints, Floats]:
    clients, owners = np.unique(updates.clients[rows], return_inverse=True)
    has_steps = np.minimum(updates.num_steps[rows], 1)

    def add_up(values: npt.NDArray[Any]) -> Floats:
        sums = np.bincount(owners, weights=values, minlength=len(clients))
        return np.asarray(sums, dtype=np.float64)

    tested, trained = add_up(updates.num_tested[rows]), add_up(has_steps)
    losses = add_up(np.where(has_steps > 0, updates.losses[rows], 0.0))
    loss = np.where(trained > 0, losses / np.maximum(trained, 1), np.nan)
    wrong = tested - add_up(updates.num_correct[rows])
    return clients.astype(np.int64), np.stack([wrong, tested, loss], axis=1)


def list_messages(recipe: Recipe) -> Mapping[str, tuple[float, float]]:
    """Return what the server can request after an alarm: values without and with one, by name.

    >>> from thalweg.drift import PageHinkley, Shrink
    >>> from thalweg.recipes import fedavg
    >>> list_messages(replace(fedavg(), alarm=PageHinkley(action=Shrink(keep=0.5))))
    {'shrink': (1.0, 0.5)}
    """
    effect, messages = recipe.effect, {}
    serving: object = recipe.serving
    if effect.keep < 1:
        messages["shrink"] = (1.0, effect.keep)
    if effect.opens_state:
        messages["open"] = (0.0, 1.0)
    if effect.drop_margin is not None:
        messages["drop"] = (0.0, 1.0)
    if recipe.alarm is not None and isinstance(serving, RestartsServing):
        messages["serving"] = (0.0, 1.0)
    return messages


def _build_messages(recipe: Recipe, is_pending: Bools) -> Mapping[str, Floats32]:
    """Return (K, 1) values: what each client has to do before samples arrive."""
    if not is_pending.any():
        return {}
    return {
        name: np.where(is_pending, requested, usual)[:, None].astype(np.float32)
        for name, (usual, requested) in list_messages(recipe).items()
    }


def _check(alarmed: Bools, clients: Ints, alarm: Alarm) -> None:
    """Check what an alarm policy returns."""
    if np.shape(alarmed) != clients.shape or np.asarray(alarmed).dtype != bool:
        raise ConfigError(
            f"{type(alarm).__name__}.update must return a bool for each of {len(clients)} clients, "
            f"got {np.asarray(alarmed).dtype} of shape {np.shape(alarmed)}."
        )


# --- the client part ---


# Returns the labels or numbers (n,) or (n, D) that the client's model predicts for training rows.
Predict = Callable[[Ints], npt.NDArray[Any]]


def apply_alarm(
    ctx: ClientContext, state: ClientState, predict: Predict | None = None
) -> ClientState:
    """If the broadcast requests it, drop samples, open a state in the forecast, restart serving.

    `predict` is that of the received model, for recipes whose alarm drops outdated samples.
    """
    messages = ctx.received.get("alarm")
    if not messages:
        return state
    forecast, margin = ctx.program.forecast, ctx.program.recipe.effect.drop_margin
    if "drop" in messages and messages["drop"][0] > 0 and margin is not None:
        assert predict is not None, "an alarm that drops samples needs predictions"
        state = _drop_outdated(ctx.program, ctx.client, state, predict, margin)
    if "shrink" in messages:
        state = _shrink_memory(ctx.program, ctx.client, state, float(messages["shrink"][0]))
    if "open" in messages and messages["open"][0] > 0 and isinstance(forecast, OpensStates):
        state = state._replace(forecast=forecast.open_next_state(state.forecast))
    serving: object = ctx.program.recipe.serving
    is_restarted = "serving" in messages and messages["serving"][0] > 0
    if is_restarted and isinstance(serving, RestartsServing):
        assert state.serving is not None
        restarted = serving.restart(state.serving.policy)
        state = state._replace(serving=state.serving._replace(policy=restarted))
    return state


def _shrink_memory(
    program: ClientProgram, client: int, state: ClientState, keep: float
) -> ClientState:
    """Keep the newest share of the memory."""
    if keep >= 1:
        return state
    kept = find_newest(
        state.since, len(state.rows), round_count(max(keep, 0.0) * len(state.rows), None)
    )
    return _keep_rows(program, client, state, kept)


def _keep_rows(program: ClientProgram, client: int, state: ClientState, kept: Ints) -> ClientState:
    """Keep some positions (n,) of the memory and restart its policy; nothing else changes."""
    return state._replace(
        rows=state.rows[kept],
        memory=program.recipe.memory.init(program.stream.capacity(client), len(kept)),
        since=None if state.since is None else state.since[kept],
    )


def _drop_outdated(
    program: ClientProgram, client: int, state: ClientState, predict: Predict, margin: float
) -> ClientState:
    """Drop the stored samples that the samples of the next round contradict."""
    held, new = state.rows.astype(np.int64), program.arriving_rows(client, state)
    if len(held) == 0 or len(new) == 0:
        return state
    rows = np.concatenate([held, new])
    is_wrong = _find_wrong(program, rows, predict(rows))
    is_outdated = find_outdated(program.labels.take(rows), is_wrong, len(held), margin)
    if not is_outdated.any():
        return state
    return _keep_rows(program, client, state, np.flatnonzero(~is_outdated))


def _find_wrong(program: ClientProgram, rows: Ints, predicted: npt.NDArray[Any]) -> Bools:
    """Return (n,) which predictions are wrong; those of numbers, if they are worse than usual."""
    targets = program.targets(rows)
    if program.numbers is None:
        return np.asarray(predicted != targets)
    return np.asarray(compute_abs_errors(predicted, targets) > targets.std(axis=0).mean())


def find_outdated(labels: Ints, is_wrong: Bools, num_held: int, margin: float) -> Bools:
    """Return (num_held,) the stored samples that are outdated, by the rule of `DropOutdated`.

    `labels` and `is_wrong` are of the stored samples, followed by the new ones. Four stored samples
    of class 0 are predicted correctly and one wrongly, all four new ones wrongly: the difference is
    0.8, the standard error sqrt(5/9 * 4/9 * (1/5 + 1/4)) = 0.333, and 0.8 - 2 * 0.333 > 0.1.

    >>> labels = np.array([0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1])
    >>> is_wrong = np.array([0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1], dtype=bool)
    >>> find_outdated(labels, is_wrong, num_held=6, margin=0.1).tolist()
    [True, True, True, True, False, False]
    """
    num_classes = int(labels.max(initial=-1)) + 1
    parts = slice(None, num_held), slice(num_held, None)
    held, new = (np.bincount(labels[part], minlength=num_classes) for part in parts)
    wrong, new_wrong = (
        np.bincount(labels[part], weights=is_wrong[part], minlength=num_classes) for part in parts
    )
    in_both = (held > 0) & (new > 0)
    num, num_new = np.maximum(held, 1), np.maximum(new, 1)
    difference = new_wrong / num_new - wrong / num
    share = (wrong + new_wrong) / (num + num_new)
    error = np.sqrt(share * (1 - share) * (1 / num + 1 / num_new))
    has_changed = in_both & (np.abs(difference) - 2 * error > margin)
    old = labels[:num_held]
    is_contradicted = is_wrong[:num_held] == (difference < 0)[old]
    return np.asarray(has_changed[old] & is_contradicted)


def find_newest(since: Rows | None, held: int, count: int) -> Ints:
    """Return the positions, ascending, of the samples that arrived last.

    Among samples of the same round, the last ones in memory count as newest.

    >>> find_newest(np.array([3, 1, 3, 2], dtype=np.int32), 4, 2).tolist()
    [0, 2]
    """
    order = np.arange(held) if since is None else np.argsort(since, kind="stable")
    return np.sort(order[held - count :])
