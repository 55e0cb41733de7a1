"""The server's half of a round: choose, arrange the bank, train, weigh, merge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from thalweg.aggregation import Arranged, Paces, chosen
from thalweg.core.errors import ConfigError, require
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints, Job, Roster, Session, Updates
from thalweg.recipes.alarms import begin_acting, watched, with_alarmed
from thalweg.recipes.base import Recipe
from thalweg.recipes.checks import check_plan
from thalweg.recipes.door import NO_ORDERS, admit, asked_for, awaited_after, still_open
from thalweg.recipes.federation import Federation
from thalweg.recipes.hiding import charged, disclosed
from thalweg.recipes.inquiry import Inquiry
from thalweg.recipes.merging import added_up, merge
from thalweg.recipes.sessions import Rehearsals, begin_session, begins
from thalweg.recipes.state import ServerState
from thalweg.recipes.sums import masking_bytes
from thalweg.recipes.tables import updates_of
from thalweg.recipes.talks import (
    bytes_down,
    hear,
    hear_division,
    per_job,
    remarks_of,
    tell,
    with_bank,
)

DrawModel = Callable[[int], Floats32]  # parameters (P,) of the n-th model that is drawn in a run


def play_round(
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
    roster = replace(federation.roster(rnd), times_here=server.times_here, known=server.known)
    roster = with_alarmed(roster, server.alarm, recipe)
    session = roster.session or Session(0, rnd, roster.here)
    rehearsals = Rehearsals(recipe, federation, roster, seed)
    if begins(roster, server):
        server = begin_session(server, recipe, session, rehearsals)
    inquiry = Inquiry(federation, server.bank, rnd, seed)
    roster = inquiry.remembered("emphasis", recipe.emphasis, roster)
    roster = inquiry.remembered("selection", recipe.selection, roster)
    cohort = _cohort(recipe, roster, seed)
    times_here = server.times_here.copy()
    times_here[roster.here] += 1
    known = charged(roster.known, recipe, rehearsals.asked, roster.num_clients)
    server = server._replace(rnd=rnd + 1, times_here=times_here, known=known)
    if len(cohort) == 0:
        return server, _only_costs(server, inquiry, rehearsals)
    roster = replace(roster, cohort=cohort)
    server, plan = _arrange(server, recipe, inquiry, roster, draw_model)
    jobs = [
        Job(client, model, _pace(recipe, server.rules[model]), session.number, session.age)
        for client, model in zip(plan.clients.tolist(), plan.models.tolist(), strict=True)
    ]
    told = tell(server.talks, recipe, roster, cohort, server.bank.shape[1])
    told = per_job(with_bank(told, recipe, plan), cohort, plan.clients)
    alarm, jobs, told = begin_acting(server.alarm, recipe, jobs, told)
    server = server._replace(known=charged(known, recipe, [cohort], roster.num_clients))
    came = federation.train(jobs, server.bank, rnd, told)
    updates = asked_for(came, jobs, rnd, still_open(server.awaited, rnd, recipe.staleness))
    admit(updates, rnd, num_params=server.bank.shape[1])
    alarm, raised = watched(alarm, recipe, updates, rnd)
    masks_down, masks_up = masking_bytes(recipe, len(jobs), server.bank.shape[1])
    updates = replace(
        updates,
        bytes_down=inquiry.bytes_down
        + bytes_down(server.bank, jobs, told, inquiry.shown)
        + rehearsals.bytes_down
        + masks_down,
        bytes_answered=inquiry.bytes_up + rehearsals.bytes_up + masks_up,
        remarks={
            **updates.remarks,
            **remarks_of(recipe, roster, cohort, server.arrangement),
            **rehearsals.remarks,
            **raised,
            **disclosed(server.known, recipe),
        },
    )
    bank, rules, merged = _merge(server, recipe, updates, roster)
    updates = replace(updates, remarks={**updates.remarks, **merged})
    return server._replace(
        bank=bank,
        rules=rules,
        known=_learn(server, updates),
        awaited=_awaited(server, recipe, jobs, updates, rnd),
        talks=hear(server.talks, recipe, updates),
        arrangement=hear_division(server.arrangement, recipe, updates),
        alarm=alarm,
    ), updates


def _only_costs(server: ServerState, inquiry: Inquiry, rehearsals: Rehearsals) -> Updates | None:
    """No rows, but what was asked and rehearsed has been paid for; none if nothing was."""
    if inquiry.bytes_down + inquiry.bytes_up + rehearsals.count == 0:
        return None
    return replace(
        updates_of([], server.bank.shape[1]),
        bytes_down=inquiry.bytes_down + rehearsals.bytes_down,
        bytes_answered=inquiry.bytes_up + rehearsals.bytes_up,
        remarks=rehearsals.remarks,
    )


def _arrange(
    server: ServerState,
    recipe: Recipe,
    inquiry: Inquiry,
    roster: Roster,
    draw_model: DrawModel | None,
) -> tuple[ServerState, Arranged]:
    """The bank for this cohort, and which models its clients train."""
    num_models = len(server.bank)
    asked, answers = inquiry.asked_and_answers("bank", recipe.bank, roster)
    roster = replace(roster, asked=asked)
    plan = recipe.bank.arrange(server.arrangement, roster, answers, num_models)
    check_plan(plan, chosen(roster), num_models, recipe.bank)
    bank, rules, drawn = server.bank, server.rules, server.drawn
    if plan.mix.shape != (1, 1) or plan.is_new.any():
        bank = (plan.mix @ server.bank).astype(np.float32)
        for row, mix in zip(bank, plan.mix, strict=True):
            if mix.max() == 1:  # to the bit
                row[:] = server.bank[mix.argmax()]
            elif not mix.any():
                row[:], drawn = _drawn(draw_model, drawn, recipe), drawn + 1
        rules = [
            recipe.server.init(bank.shape[1]) if new else server.rules[int(mix.argmax())]
            for new, mix in zip(plan.is_new, plan.mix, strict=True)
        ]
        # A late update may have been trained from a model that is now another one, or in another place.
        server = server._replace(awaited=NO_ORDERS)
    return server._replace(bank=bank, rules=rules, drawn=drawn, arrangement=plan.notes), plan


def _drawn(draw_model: DrawModel | None, number: int, recipe: Recipe) -> Floats32:
    require(
        draw_model is not None,
        f"{type(recipe.bank).__name__} opens models that are drawn at random; give play_round a draw_model.",
    )
    assert draw_model is not None
    return draw_model(number)


def _merge(
    server: ServerState, recipe: Recipe, updates: Updates, roster: Roster
) -> tuple[Floats32, list[Any], dict[str, float]]:
    """The bank after the updates, what the server rule remembers of each model, and what is remarkable about it."""
    bank, rules, remarks = server.bank.copy(), list(server.rules), []
    for model in np.unique(updates.models):
        # A client whose memory was empty has learnt nothing and has no say.
        mine = updates.only((updates.models == model) & (updates.num_steps > 0))
        if len(mine):
            weights = _weigh(recipe, mine, roster)
            merged = merge(recipe, rules[model], bank[model], mine.deltas, weights)
            rules[model], bank[model] = merged.rule, merged.model
            remarks.append(merged.remarks)
    return bank, rules, added_up(remarks)


def _weigh(recipe: Recipe, updates: Updates, roster: Roster) -> Floats:
    """(K,) what each update counts: as the recipe's weights say, and late ones less."""
    weights = recipe.weights.weigh(updates, roster)
    if updates.trained_in is None:
        return weights
    return weights * recipe.staleness.factor(updates.staleness(roster.rnd))


def _awaited(
    server: ServerState, recipe: Recipe, jobs: Sequence[Job], heard: Updates, rnd: int
) -> Ints:
    """Orders that stay open; none if there are several models, whose places in the bank may change."""
    if len(server.bank) > 1:
        return NO_ORDERS
    return awaited_after(server.awaited, jobs, heard, rnd, recipe.staleness)


def _pace(recipe: Recipe, rule: Any) -> float:
    return recipe.server.pace(rule) if isinstance(recipe.server, Paces) else 1.0


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
    """Remember the newest report of every client that sent one: of rows of one client the last, which stays."""
    known = dict(server.known)
    reports = {**updates.reports, "loss": updates.losses, "num_samples": updates.num_samples}
    for name, values in reports.items():
        known[name] = known.get(name, np.full(len(server.times_here), np.nan)).copy()
        said = ~np.isnan(values)
        known[name][updates.clients[said]] = values[said]
    return known
