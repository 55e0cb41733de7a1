"""Sessions: when they start, resets at the server, and messages to find their first model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from thalweg.aggregation import Averaged
from thalweg.core.capabilities import TracksSessions
from thalweg.core.decisions import make_decision
from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints, Job, Updates
from thalweg.federation.context import RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.federation.extensions.secure_aggregation import masking_bytes
from thalweg.federation.extensions.server_parts import build_broadcast
from thalweg.federation.extensions.staleness import NO_REQUESTS
from thalweg.federation.extensions.surveys import send_survey
from thalweg.federation.server_state import eval_model, get_served_models
from thalweg.federation.server_steps import bytes_down, bytes_up, merge_updates
from thalweg.federation.validation import match_updates, validate_updates
from thalweg.recipes.base import Recipe
from thalweg.recipes.compatibility import iter_server_parts
from thalweg.sessions import ExtraStartMetrics, JudgesModels


class Sessions(RoundExtension):
    """Starts a session in its first round in which a client is present.

    The sessions are those of the scenario, or those that the recipe's trigger opens.
    """

    def start_round(self, ctx: RoundContext) -> None:
        observe_session(ctx)
        session = ctx.roster.session
        if session is None or session.number == ctx.server.session or len(ctx.roster.present) == 0:
            return
        probe_rounds = ProbeRounds(ctx)
        start_server_session(ctx, probe_rounds)
        session_start: object = ctx.recipe.session_start
        if isinstance(session_start, ExtraStartMetrics) and len(ctx.server.bank) == 1:
            _add_metrics(ctx, session_start.extra_metrics(ctx.server.session_start))
        if probe_rounds.count:
            ctx.extra_metrics["probe_rounds"] = probe_rounds.count
            ctx.extra_metrics["probe_round_steps"] = probe_rounds.num_steps

    def after_training(self, ctx: RoundContext) -> None:
        """Pass the alarms of the round, which its extension has recorded, to the trigger."""
        trigger = ctx.recipe.session_trigger
        if trigger is not None and len(ctx.alarmed):
            state = trigger.observe_alarms(ctx.server.session_trigger, ctx.rnd, ctx.alarmed)
            ctx.server = ctx.server._replace(session_trigger=state)


def observe_session(ctx: RoundContext) -> None:
    """Replace the session of the round by that of the recipe's trigger, if it has one."""
    trigger = ctx.recipe.session_trigger
    if trigger is None:
        return
    state, opening = trigger.observe_presence(
        ctx.server.session_trigger, ctx.rnd, ctx.roster.present
    )
    ctx.session = trigger.get_session(state, ctx.rnd)
    ctx.roster = replace(ctx.roster, session=ctx.session)
    ctx.server = ctx.server._replace(session_trigger=state)
    if opening is not None:
        values = {"session": ctx.session.number, **opening.numbers}
        decision = make_decision("open-session", opening.reason, **values)
        _add_metrics(ctx, {"decisions": [decision]})


def _add_metrics(ctx: RoundContext, metrics: Mapping[str, Any]) -> None:
    """Add metrics to the round; decisions are appended to earlier ones."""
    ctx.extra_metrics |= {name: each for name, each in metrics.items() if name != "decisions"}
    if "decisions" in metrics:
        ctx.extra_metrics.setdefault("decisions", []).extend(metrics["decisions"])


def start_server_session(ctx: RoundContext, probe_rounds: ProbeRounds) -> None:
    """Choose the model of a new session.

    Reset server rules and the server parts that track sessions.

    A bank of several models keeps its models.
    """
    server, recipe = ctx.server, ctx.recipe
    bank, session_start = get_served_models(server, recipe).models, server.session_start
    past = bank[0] if server.session >= 0 else bank[0][:0]
    policy: object = recipe.session_start
    if len(bank) == 1 and isinstance(policy, JudgesModels):
        session_start, candidates = policy.propose_models(session_start, bank[0])
        losses = judge_models(ctx, policy, candidates)
        session_start, model = policy.choose_model(session_start, candidates, losses)
        bank = _validate_model(model, bank[0], recipe)[None]
    elif len(bank) == 1:
        session_start, model = recipe.session_start.choose_start(
            session_start, bank[0], probe_rounds
        )
        bank = _validate_model(model, bank[0], recipe)[None]
    elif isinstance(policy, JudgesModels):
        session_start = policy.skip_session(session_start)
    part_states = {
        stage: policy.start_session(server.part_states[stage], past, ctx.session.members)
        if isinstance(policy, TracksSessions)
        else server.part_states[stage]
        for stage, policy in iter_server_parts(recipe)
    }
    ctx.server = server._replace(
        session=ctx.session.number,
        bank=bank,
        rules=[recipe.server.init(bank.shape[1]) for _ in bank],
        session_start=session_start,
        open_requests=NO_REQUESTS,  # late updates belong to the model of another session
        part_states=part_states,
    )


def judge_models(ctx: RoundContext, policy: JudgesModels, candidates: Floats32) -> Floats:
    """Return (n, k) the losses of candidates (k, P) at the clients that respond.

    The clients are chosen as the cohort of a round, with random numbers of their own.
    """
    if len(candidates) < 2:
        return np.empty((0, len(candidates)))
    selection = ctx.recipe.selection
    rng = rng_for(ctx.seed, Draw.JUDGES, ctx.rnd)
    cohort: Ints = np.unique(selection.choose(ctx.roster_for(selection), rng)).astype(np.int64)
    _, responses = send_survey(ctx, "session_start", policy, candidates, cohort)
    losses = np.empty((0, len(candidates)))
    for values in responses.values():
        losses = values[~np.isnan(values).any(axis=1)]
    if losses.shape[1] != len(candidates):
        raise ConfigError(
            f"{type(policy).__name__}.answer_survey must return one loss for each of "
            f"{len(candidates)} models, got {losses.shape[1]}."
        )
    return losses


class ProbeRounds:
    """Runs probe rounds: clients train and report, but keep their state.

    Counts the costs in `ctx`.
    """

    def __init__(self, ctx: RoundContext) -> None:
        self._ctx = ctx
        self.count = self.num_steps = 0

    def __call__(self, model: Floats32, lr_scale: float = 1.0) -> Floats32:
        """Return a model after one round with fresh server rules.

        The same model if no client trains.
        """
        self.count += 1
        ctx, recipe, roster = self._ctx, self._ctx.recipe, self._ctx.roster
        rng = rng_for(ctx.seed, Draw.PROBE_ROUND, ctx.rnd, take=self.count)
        cohort = np.unique(recipe.selection.choose(ctx.roster_for(recipe.selection), rng)).astype(
            np.int64
        )
        if len(cohort) == 0:
            return model
        ctx.probe_cohorts.append(cohort)
        part_states = {
            stage: policy.init_server(roster.num_clients, len(model))
            for stage, policy in iter_server_parts(recipe)
        }
        broadcast = build_broadcast(part_states, recipe, roster, cohort, len(model))
        number = 0 if roster.session is None else roster.session.number
        jobs = [
            Job(client, 0, lr_scale, number, probe_round=self.count) for client in cohort.tolist()
        ]
        received = ctx.federation.train(jobs, model[None], ctx.rnd, broadcast)
        updates = match_updates(received, jobs, ctx.rnd)
        validate_updates(updates, ctx.rnd, num_params=len(model))
        self._count(updates, len(cohort), bytes_down(model[None], jobs, broadcast, ()))
        trained = updates.only(updates.num_steps > 0)
        if len(trained) == 0:
            return model
        weights = recipe.weights.weigh(trained, ctx.roster_for(recipe.weights))
        if isinstance(recipe.server, Averaged):  # one round has no average
            recipe = replace(recipe, server=recipe.server.rule)
        rule_state = recipe.server.init(len(model))
        merged = merge_updates(
            recipe, rule_state, model, trained.deltas, weights, ctx.server.num_buffers
        )
        return eval_model(recipe, merged.rule_state, merged.model)

    def _count(self, updates: Updates, cohort_size: int, down: int) -> None:
        self.num_steps += int(updates.num_steps.sum())
        mask_down, mask_up = masking_bytes(self._ctx.recipe, cohort_size, updates.deltas.shape[1])
        self._ctx.bytes_down += down + mask_down
        self._ctx.bytes_up += bytes_up(updates) + mask_up


def _validate_model(model: Floats32, last: Floats32, recipe: Recipe) -> Floats32:
    """Check the model that a session start returns."""
    model = np.asarray(model)
    if model.shape != last.shape or not np.isfinite(model).all():
        raise ConfigError(
            f"{type(recipe.session_start).__name__}.choose_start must return a model of "
            f"{len(last)} finite numbers, got shape {model.shape}."
        )
    return model.astype(np.float32, copy=False)
