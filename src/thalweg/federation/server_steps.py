"""The single steps of a server round: choose a cohort, build jobs, aggregate, count bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from thalweg.aggregation import CombinedUpdates, ScalesLr, WeighsRounds
from thalweg.aggregation.weights import TOTAL
from thalweg.bank import ExtraBankMetrics
from thalweg.core.capabilities import Broadcast, ExtraMetrics, RecordsChoices
from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints, Job, Updates
from thalweg.core.vectors import combine, zero_columns
from thalweg.federation.context import RoundContext
from thalweg.federation.messages import build_updates
from thalweg.federation.serving import STAGE as PER_MODEL
from thalweg.recipes.base import Recipe
from thalweg.sample_weights import AssignsWeights


def choose_cohort(ctx: RoundContext) -> None:
    """Choose the clients of this round, and record the choice and the clients that are present."""
    roster, selection = ctx.roster, ctx.recipe.selection
    chosen = selection.choose(ctx.roster_for(selection), rng_for(ctx.seed, Draw.SELECTION, ctx.rnd))
    cohort = np.unique(chosen)
    if len(cohort) != len(chosen) or not np.isin(cohort, roster.present).all():
        raise ConfigError(
            f"{type(selection).__name__}.choose must return different clients out of the "
            f"{len(roster.present)} that are present, got {np.asarray(chosen).tolist()}."
        )
    cohort, known = cohort.astype(np.int64), dict(roster.known)
    if isinstance(selection, RecordsChoices):
        known |= selection.record_choice(roster, cohort)
    ctx.cohort = _drop_unweighted(ctx, cohort)
    ctx.roster = replace(roster, cohort=ctx.cohort)
    times_present = ctx.server.times_present.copy()
    times_present[roster.present] += 1
    ctx.server = ctx.server._replace(rnd=ctx.rnd + 1, times_present=times_present, known=known)


def _drop_unweighted(ctx: RoundContext, cohort: Ints) -> Ints:
    """Return the clients of a cohort to contact: without those that would not train."""
    sample_weights: object = ctx.recipe.sample_weights
    if not isinstance(sample_weights, AssignsWeights):
        return cohort
    if not getattr(sample_weights, "skips_unweighted", False):
        return cohort
    assigned = sample_weights.assign_weights(ctx.roster, ctx.server.bank.shape[1])
    return cohort[assigned[cohort] > 0]


def make_jobs(ctx: RoundContext) -> list[Job]:
    """Return one job per client and assigned model."""
    assert ctx.assignment is not None
    clients, models = ctx.assignment.clients.tolist(), ctx.assignment.models.tolist()
    lr_scales = {model: _get_lr_scale(ctx, model) for model in set(models)}
    return [
        Job(client, model, lr_scales[model], ctx.session.number, ctx.session.age)
        for client, model in zip(clients, models, strict=True)
    ]


def set_round_weight(recipe: Recipe, rule_state: Any, updates: Updates) -> Any:
    """Return the state of a server rule for a round with these updates of one model."""
    rule: object = recipe.server
    if not isinstance(rule, WeighsRounds) or TOTAL not in updates.reports:
        return rule_state
    return rule.set_round_weight(rule_state, float(np.nansum(updates.reports[TOTAL])))


class MergeResult(NamedTuple):
    """One model after aggregation."""

    rule_state: Any  # the state of the server rule for this model
    model: Floats32  # (P,)
    extra_metrics: Mapping[str, float]  # of the robust rule


def merge_updates(
    recipe: Recipe,
    rule_state: Any,
    model: Floats32,
    deltas: Floats32,
    weights: Floats,
    num_buffers: int = 0,
) -> MergeResult:
    """Apply updates (K, P) with weights (K,) to a model (P,).

    The last `num_buffers` values are statistics, such as variances, and are averaged. The server
    rule changes the others only: with momentum or adaptive steps a variance could become negative.

    The robust rule, if there is one, first removes or limits harmful updates. If it leaves no
    update, the model and the state of the server rule do not change.
    """
    combined = CombinedUpdates(deltas, weights)
    if recipe.robust is not None:
        combined = recipe.robust.combine(deltas, weights)
        _check_combined(combined, deltas.shape[1], recipe.robust)
    if len(combined.deltas) == 0:
        return MergeResult(rule_state, model, combined.extra_metrics)
    deltas, weights = combined.deltas, combined.weights
    buffers = slice(len(model) - num_buffers, len(model))
    if num_buffers:
        deltas = zero_columns(deltas, buffers.start)
    rule_state, moved = recipe.server.step(rule_state, model, deltas, weights)
    if num_buffers:
        averaged = model + combine(weights, combined.deltas)
        moved = np.concatenate([moved[: buffers.start], averaged[buffers]])
    return MergeResult(rule_state, moved, combined.extra_metrics)


def sum_metrics(extra_metrics: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Add up metrics of several models by name.

    >>> sum_metrics([{"clipped": 2}, {}, {"clipped": 1, "too_few": 1}])
    {'clipped': 3, 'too_few': 1}
    """
    total: dict[str, float] = {}
    for each in extra_metrics:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def record_reports(ctx: RoundContext, updates: Updates) -> None:
    """Store the newest report of every client.

    A later row of a client overwrites an earlier one.
    """
    known, num_clients = dict(ctx.server.known), len(ctx.server.times_present)
    reports = {**updates.reports, "loss": updates.losses, "num_samples": updates.num_samples}
    for name, values in reports.items():
        known[name] = known.get(name, np.full(num_clients, np.nan)).copy()
        is_reported = ~np.isnan(values)
        known[name][updates.clients[is_reported]] = values[is_reported]
    ctx.server = ctx.server._replace(known=known)


def collect_policy_metrics(ctx: RoundContext) -> None:
    """Add the extra metrics of the selection, the sample weights and the bank."""
    policies: tuple[object, ...] = (ctx.recipe.selection, ctx.recipe.sample_weights)
    for policy in policies:
        if isinstance(policy, ExtraMetrics):
            ctx.extra_metrics |= policy.extra_metrics(ctx.roster_for(policy), ctx.cohort)
    bank: object = ctx.recipe.bank
    if isinstance(bank, ExtraBankMetrics):
        values = dict(bank.extra_metrics(ctx.server.bank_state, ctx.roster_for(bank)))
        decisions = values.pop("decisions", [])
        if decisions:
            ctx.extra_metrics.setdefault("decisions", []).extend(decisions)
        ctx.extra_metrics |= values


def add_costs(ctx: RoundContext, updates: Updates) -> Updates:
    """Return the updates with the byte counts and the extra metrics of the round."""
    return replace(
        updates,
        bytes_down=ctx.bytes_down,
        extra_bytes_up=ctx.bytes_up,
        extra_metrics={**updates.extra_metrics, **ctx.extra_metrics},
    )


def finish_without_cohort(ctx: RoundContext) -> Updates | None:
    """Return an empty update table with the costs of surveys and probe rounds.

    None if there are none.
    """
    if ctx.bytes_down + ctx.bytes_up == 0 and not ctx.extra_metrics:
        return None
    return add_costs(ctx, build_updates([], ctx.server.bank.shape[1]))


def bytes_down(
    bank: Floats32, jobs: Sequence[Job], broadcast: Broadcast, sent_bank_to: Iterable[int]
) -> int:
    """Return the bytes of the models and the broadcast.

    There is one model per job, except for clients that received the whole bank with a survey. Each
    client receives the broadcast once, except for averaged models, one for each job.
    """
    first = np.unique([job.client for job in jobs], return_index=True)[1]
    values = sum(
        rows.nbytes if stage == PER_MODEL else rows[first].nbytes
        for stage, messages in broadcast.items()
        for rows in messages.values()
    )
    return int(sum(job.client not in sent_bank_to for job in jobs) * bank[0].nbytes + values)


def bytes_up(updates: Updates) -> int:
    """Return the bytes of updates, reports, uploads and survey responses."""
    uploads = sum(values.nbytes for values in updates.uploads.values())
    reports = 8 * len(updates) * len(updates.reports)
    return updates.deltas.nbytes + reports + uploads + updates.extra_bytes_up


def _get_lr_scale(ctx: RoundContext, model: int) -> float:
    rule = ctx.recipe.server
    return rule.lr_scale(ctx.server.rules[model]) if isinstance(rule, ScalesLr) else 1.0


def _check_combined(combined: CombinedUpdates, num_params: int, robust: object) -> None:
    """Check what a robust rule returns."""
    deltas, weights = combined.deltas, combined.weights
    is_valid = (
        deltas.ndim == 2 and deltas.shape[1] == num_params and weights.shape == (len(deltas),)
    )
    is_valid = is_valid and deltas.dtype == np.float32 and np.isfinite(deltas).all()
    if not is_valid or not np.isfinite(weights).all() or (weights < 0).any():
        raise ConfigError(
            f"{type(robust).__name__}.combine must return finite float32 updates of {num_params} "
            f"numbers and a weight of at least 0 for each, got {deltas.dtype} of shape "
            f"{deltas.shape} and weights of shape {weights.shape} from {weights.min(initial=0)} to "
            f"{weights.max(initial=0)}."
        )
