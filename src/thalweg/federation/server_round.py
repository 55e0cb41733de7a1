"""The server part of a round."""

from __future__ import annotations

import numpy as np

from thalweg.core.types import Updates
from thalweg.federation.base import Federation
from thalweg.federation.context import DrawModel, RoundContext, start_context
from thalweg.federation.extensions.alarms import Alarms
from thalweg.federation.extensions.bank import SampleSplits, assign_models
from thalweg.federation.extensions.base import RoundExtension
from thalweg.federation.extensions.privacy import NoiseMark, PrivacyAccounting
from thalweg.federation.extensions.secure_aggregation import MaskingCosts
from thalweg.federation.extensions.server_parts import ServerParts
from thalweg.federation.extensions.serving import SentAverages
from thalweg.federation.extensions.sessions import Sessions
from thalweg.federation.extensions.staleness import LateUpdates
from thalweg.federation.extensions.surveys import ServerSurveys
from thalweg.federation.server_state import ServerState
from thalweg.federation.server_steps import (
    add_costs,
    bytes_down,
    choose_cohort,
    collect_policy_metrics,
    finish_without_cohort,
    make_jobs,
    merge_updates,
    record_reports,
    set_round_weight,
    sum_metrics,
)
from thalweg.federation.validation import match_updates, validate_updates
from thalweg.recipes.base import Recipe

EXTENSIONS: tuple[RoundExtension, ...] = (
    Alarms(),
    Sessions(),
    ServerSurveys(),
    PrivacyAccounting(),
    NoiseMark(),
    ServerParts(),
    SampleSplits(),
    SentAverages(),
    MaskingCosts(),
    LateUpdates(),
)


def run_server_round(
    server: ServerState,
    federation: Federation,
    recipe: Recipe,
    seed: int,
    draw_model: DrawModel | None = None,
) -> tuple[ServerState, Updates | None]:
    """Run one round and return the new server state and the accepted updates.

    Without a cohort the models stay the same, the round still counts, and there are no updates.
    If no client responds in time, the updates have no rows. Banks that open random models need
    `draw_model`.
    """
    ctx = start_context(server, federation, recipe, seed, draw_model)
    extensions = [extension for extension in EXTENSIONS if extension.is_used_by(recipe)]
    for extension in extensions:
        extension.start_round(ctx)
    choose_cohort(ctx)
    if len(ctx.cohort) == 0:
        return ctx.server, finish_without_cohort(ctx)
    assign_models(ctx)
    ctx.jobs = make_jobs(ctx)
    for extension in extensions:
        extension.before_training(ctx)
    bank = ctx.server.bank
    ctx.bytes_down += bytes_down(bank, ctx.jobs, ctx.broadcast, ctx.sent_bank_to)
    received = federation.train(ctx.jobs, bank, ctx.rnd, ctx.broadcast)
    ctx.updates = match_updates(received, ctx.jobs, ctx.rnd, ctx.open_requests)
    validate_updates(ctx.updates, ctx.rnd, num_params=bank.shape[1])
    collect_policy_metrics(ctx)
    for extension in extensions:
        extension.after_training(ctx)
    _aggregate(ctx, ctx.updates, extensions)
    record_reports(ctx, ctx.updates)
    for extension in extensions:
        extension.finish_round(ctx)
    return ctx.server, add_costs(ctx, ctx.updates)


def _aggregate(ctx: RoundContext, updates: Updates, extensions: list[RoundExtension]) -> None:
    """Weight the updates of each model and apply them."""
    bank, rules, extra_metrics = ctx.server.bank.copy(), list(ctx.server.rules), []
    for model in np.unique(updates.models):
        # A client without a step has trained on nothing, so its update is ignored.
        rows = updates.only((updates.models == model) & (updates.num_steps > 0))
        if len(rows):
            weights = ctx.recipe.weights.weigh(rows, ctx.roster_for(ctx.recipe.weights))
            for extension in extensions:
                weights = extension.adjust_weights(ctx, rows, weights)
            merged = merge_updates(
                ctx.recipe,
                set_round_weight(ctx.recipe, rules[model], rows),
                bank[model],
                rows.deltas,
                weights,
                ctx.server.num_buffers,
            )
            rules[model], bank[model] = merged.rule_state, merged.model
            extra_metrics.append(merged.extra_metrics)
    ctx.extra_metrics |= sum_metrics(extra_metrics)
    ctx.server = ctx.server._replace(bank=bank, rules=rules)
