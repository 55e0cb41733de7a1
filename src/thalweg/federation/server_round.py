"""The server's half of a round: choose, arrange the bank, train, weigh, merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from thalweg.aggregation import ScalesLr
from thalweg.bank import BankAssignment, require_cohort
from thalweg.core.errors import ConfigError, require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, Session, Updates
from thalweg.federation.base import Federation
from thalweg.federation.checks import check_bank_assignment
from thalweg.federation.extensions.alarms import act_on_alarms, add_alarmed_clients, update_alarms
from thalweg.federation.extensions.privacy import count_releases, privacy_metrics
from thalweg.federation.extensions.secure_aggregation import masking_bytes
from thalweg.federation.extensions.sessions import (
    ProbeRounds,
    is_session_start,
    start_server_session,
)
from thalweg.federation.merging import merge, sum_metrics
from thalweg.federation.server_halves import (
    add_bank_broadcast,
    build_broadcast,
    bytes_down,
    collect_extra_metrics,
    collect_split,
    collect_uploads,
    repeat_per_job,
)
from thalweg.federation.server_state import ServerState
from thalweg.federation.survey import Survey
from thalweg.federation.tables import build_updates
from thalweg.federation.validation import (
    NO_REQUESTS,
    drop_expired,
    match_updates,
    update_open_requests,
    validate_updates,
)
from thalweg.recipes.base import Recipe

DrawModel = Callable[[int], Floats32]  # parameters (P,) of the n-th model that is drawn in a run


def run_server_round(
    server: ServerState,
    federation: Federation,
    recipe: Recipe,
    seed: int,
    draw_model: DrawModel | None = None,
) -> tuple[ServerState, Updates | None]:
    """One round. Without a cohort the model stays as it is and the round counts all the same.

    The same if nobody of the cohort was heard in time: then the updates have no rows. `draw_model` is for banks
    that open models which are not made of others.
    """
    rnd = server.rnd
    roster = replace(federation.roster(rnd), times_present=server.times_present, known=server.known)
    roster = add_alarmed_clients(roster, server.alarm, recipe)
    session = roster.session or Session(0, rnd, roster.present)
    probe_rounds = ProbeRounds(recipe, federation, roster, seed)
    if is_session_start(roster, server):
        server = start_server_session(server, recipe, session, probe_rounds)
    survey = Survey(federation, server.bank, rnd, seed)
    roster = survey.ask_and_remember("sample_weights", recipe.sample_weights, roster)
    roster = survey.ask_and_remember("selection", recipe.selection, roster)
    cohort = _choose_cohort(recipe, roster, seed)
    times_present = server.times_present.copy()
    times_present[roster.present] += 1
    known = count_releases(roster.known, recipe, probe_rounds.cohorts, roster.num_clients)
    server = server._replace(rnd=rnd + 1, times_present=times_present, known=known)
    if len(cohort) == 0:
        return server, _report_costs(server, survey, probe_rounds)
    roster = replace(roster, cohort=cohort)
    server, plan = _assign_models(server, recipe, survey, roster, draw_model)
    jobs = [
        Job(client, model, _get_lr_scale(recipe, server.rules[model]), session.number, session.age)
        for client, model in zip(plan.clients.tolist(), plan.models.tolist(), strict=True)
    ]
    broadcast = build_broadcast(server.half_states, recipe, roster, cohort, server.bank.shape[1])
    broadcast = repeat_per_job(add_bank_broadcast(broadcast, recipe, plan), cohort, plan.clients)
    alarm, jobs, broadcast = act_on_alarms(server.alarm, recipe, jobs, broadcast)
    server = server._replace(known=count_releases(known, recipe, [cohort], roster.num_clients))
    came = federation.train(jobs, server.bank, rnd, broadcast)
    updates = match_updates(
        came, jobs, rnd, drop_expired(server.open_requests, rnd, recipe.staleness)
    )
    validate_updates(updates, rnd, num_params=server.bank.shape[1])
    alarm, raised = update_alarms(alarm, recipe, updates, rnd)
    masks_down, masks_up = masking_bytes(recipe, len(jobs), server.bank.shape[1])
    updates = replace(
        updates,
        bytes_down=survey.bytes_down
        + bytes_down(server.bank, jobs, broadcast, survey.sent_bank_to)
        + probe_rounds.bytes_down
        + masks_down,
        extra_bytes_up=survey.bytes_up + probe_rounds.bytes_up + masks_up,
        extra_metrics={
            **updates.extra_metrics,
            **collect_extra_metrics(recipe, roster, cohort, server.bank_state),
            **probe_rounds.extra_metrics,
            **raised,
            **privacy_metrics(server.known, recipe),
        },
    )
    bank, rules, merged = _merge(server, recipe, updates, roster)
    updates = replace(updates, extra_metrics={**updates.extra_metrics, **merged})
    return server._replace(
        bank=bank,
        rules=rules,
        known=_record_reports(server, updates),
        open_requests=_update_requests(server, recipe, jobs, updates, rnd),
        half_states=collect_uploads(server.half_states, recipe, updates),
        bank_state=collect_split(server.bank_state, recipe, updates),
        alarm=alarm,
    ), updates


def _report_costs(server: ServerState, survey: Survey, probe_rounds: ProbeRounds) -> Updates | None:
    """No rows, but what was asked and rehearsed has been paid for; none if nothing was."""
    if survey.bytes_down + survey.bytes_up + probe_rounds.count == 0:
        return None
    return replace(
        build_updates([], server.bank.shape[1]),
        bytes_down=survey.bytes_down + probe_rounds.bytes_down,
        extra_bytes_up=survey.bytes_up + probe_rounds.bytes_up,
        extra_metrics=probe_rounds.extra_metrics,
    )


def _assign_models(
    server: ServerState,
    recipe: Recipe,
    survey: Survey,
    roster: Roster,
    draw_model: DrawModel | None,
) -> tuple[ServerState, BankAssignment]:
    """The bank for this cohort, and which models its clients train."""
    num_models = len(server.bank)
    asked, answers = survey.ask("bank", recipe.bank, roster)
    roster = replace(roster, surveyed=asked)
    plan = recipe.bank.assign(server.bank_state, roster, answers, num_models)
    check_bank_assignment(plan, require_cohort(roster), num_models, recipe.bank)
    bank, rules, num_drawn_models = server.bank, server.rules, server.num_drawn_models
    if plan.mix.shape != (1, 1) or plan.is_new.any():
        bank = (plan.mix @ server.bank).astype(np.float32)
        for row, mix in zip(bank, plan.mix, strict=True):
            if mix.max() == 1:  # to the bit
                row[:] = server.bank[mix.argmax()]
            elif not mix.any():
                row[:], num_drawn_models = (
                    _draw_new_model(draw_model, num_drawn_models, recipe),
                    num_drawn_models + 1,
                )
        rules = [
            recipe.server.init(bank.shape[1]) if new else server.rules[int(mix.argmax())]
            for new, mix in zip(plan.is_new, plan.mix, strict=True)
        ]
        # A late update may have been trained from a model that is now another one, or in another place.
        server = server._replace(open_requests=NO_REQUESTS)
    return server._replace(
        bank=bank, rules=rules, num_drawn_models=num_drawn_models, bank_state=plan.notes
    ), plan


def _draw_new_model(draw_model: DrawModel | None, number: int, recipe: Recipe) -> Floats32:
    require(
        draw_model is not None,
        f"{type(recipe.bank).__name__} opens models that are drawn at random; give run_server_round a draw_model.",
    )
    assert draw_model is not None
    return draw_model(number)


def _merge(
    server: ServerState, recipe: Recipe, updates: Updates, roster: Roster
) -> tuple[Floats32, list[Any], dict[str, float]]:
    """The bank after the updates, what the server rule remembers of each model, and what is remarkable about it."""
    bank, rules, extra_metrics = server.bank.copy(), list(server.rules), []
    for model in np.unique(updates.models):
        # A client whose memory was empty has learnt nothing and has no say.
        mine = updates.only((updates.models == model) & (updates.num_steps > 0))
        if len(mine):
            weights = _weigh(recipe, mine, roster)
            merged = merge(recipe, rules[model], bank[model], mine.deltas, weights)
            rules[model], bank[model] = merged.rule, merged.model
            extra_metrics.append(merged.extra_metrics)
    return bank, rules, sum_metrics(extra_metrics)


def _weigh(recipe: Recipe, updates: Updates, roster: Roster) -> Floats:
    """(K,) what each update counts: as the recipe's weights say, and late ones less."""
    weights = recipe.weights.weigh(updates, roster)
    if updates.trained_in is None:
        return weights
    return weights * recipe.staleness.factor(updates.staleness(roster.rnd))


def _update_requests(
    server: ServerState, recipe: Recipe, jobs: Sequence[Job], received: Updates, rnd: int
) -> Ints:
    """Orders that stay open; none if there are several models, whose places in the bank may change."""
    if len(server.bank) > 1:
        return NO_REQUESTS
    return update_open_requests(server.open_requests, jobs, received, rnd, recipe.staleness)


def _get_lr_scale(recipe: Recipe, rule: Any) -> float:
    return recipe.server.lr_scale(rule) if isinstance(recipe.server, ScalesLr) else 1.0


def _choose_cohort(recipe: Recipe, roster: Roster, seed: int) -> Ints:
    chosen = recipe.selection.choose(roster, rng_for(seed, Draw.SELECTION, roster.rnd))
    cohort = np.unique(chosen)
    if len(cohort) != len(chosen) or not np.isin(cohort, roster.present).all():
        raise ConfigError(
            f"{type(recipe.selection).__name__}.choose must return different clients out of the "
            f"{len(roster.present)} that are here, got {np.asarray(chosen).tolist()}."
        )
    return cohort.astype(np.int64)


def _record_reports(server: ServerState, updates: Updates) -> dict[str, Floats]:
    """Remember the newest report of every client that sent one: of rows of one client the last, which stays."""
    known = dict(server.known)
    reports = {**updates.reports, "loss": updates.losses, "num_samples": updates.num_samples}
    for name, values in reports.items():
        known[name] = known.get(name, np.full(len(server.times_present), np.nan)).copy()
        said = ~np.isnan(values)
        known[name][updates.clients[said]] = values[said]
    return known
