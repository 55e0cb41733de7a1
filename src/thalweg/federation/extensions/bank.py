"""Banks of several models: which client trains which model, and how clients split their samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from thalweg.bank import BankAssignment, SplitsSamples, WatchesClients
from thalweg.core.errors import ConfigError, require
from thalweg.core.types import Floats32, Ints, Updates
from thalweg.federation.context import RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.federation.extensions.server_parts import repeat_per_job, select_uploads
from thalweg.federation.extensions.staleness import NO_REQUESTS
from thalweg.federation.extensions.surveys import send_survey
from thalweg.recipes.base import Recipe


def assign_models(ctx: RoundContext) -> None:
    """Let the bank open, merge or close models and assign models to the clients of the cohort."""
    _add_start_models(ctx)
    bank, num_models = ctx.recipe.bank, len(ctx.server.bank)
    watched: object = bank
    more = (
        watched.find_watched(ctx.server.bank_state, ctx.roster)
        if isinstance(watched, WatchesClients)
        else None
    )
    surveyed, responses = send_survey(ctx, "bank", bank, more=more)
    roster = replace(ctx.roster_for(bank), surveyed=surveyed)
    assignment = bank.assign(ctx.server.bank_state, roster, responses, num_models)
    check_bank_assignment(assignment, ctx.cohort, num_models, bank)
    ctx.assignment = assignment
    if assignment.mix.shape != (1, 1) or assignment.is_new.any():
        _rebuild_bank(ctx, assignment)
    ctx.server = ctx.server._replace(bank_state=assignment.state)


def _add_start_models(ctx: RoundContext) -> None:
    """Add the random models with which a bank starts (`num_start_models`), in the first round."""
    server, wanted = ctx.server, getattr(ctx.recipe.bank, "num_start_models", 1)
    numbers = range(server.num_drawn_models, wanted)
    if not numbers:
        return
    models = [_draw_new_model(ctx, number) for number in numbers]
    ctx.server = server._replace(
        bank=np.stack([*server.bank, *models]),
        rules=[*server.rules, *(ctx.recipe.server.init(len(model)) for model in models)],
        num_drawn_models=wanted,
    )


def _rebuild_bank(ctx: RoundContext, assignment: BankAssignment) -> None:
    """Build the models of the round from the models of the previous one."""
    server, recipe, num_drawn_models = ctx.server, ctx.recipe, ctx.server.num_drawn_models
    if np.isin(assignment.mix, (0, 1)).all():  # copies only: avoid a product of large matrices
        bank = server.bank[assignment.mix.argmax(axis=1)]
    else:
        bank = (assignment.mix @ server.bank).astype(np.float32)
    for row, mix in zip(bank, assignment.mix, strict=True):
        if mix.max() == 1:  # an exact copy, without rounding
            row[:] = server.bank[mix.argmax()]
        elif not mix.any():
            row[:] = _draw_new_model(ctx, num_drawn_models)
            num_drawn_models += 1
    rules = [
        recipe.server.init(bank.shape[1]) if is_new else server.rules[int(mix.argmax())]
        for is_new, mix in zip(assignment.is_new, assignment.mix, strict=True)
    ]
    ctx.server = server._replace(
        bank=bank,
        rules=rules,
        num_drawn_models=num_drawn_models,
        # A late update may belong to a model that has changed or moved to another position.
        open_requests=NO_REQUESTS,
    )


def _draw_new_model(ctx: RoundContext, number: int) -> Floats32:
    require(
        ctx.draw_model is not None,
        f"{type(ctx.recipe.bank).__name__} opens models that are drawn at random; give "
        "run_server_round a draw_model.",
    )
    assert ctx.draw_model is not None
    return ctx.draw_model(number)


class SampleSplits(RoundExtension):
    """Messages of banks whose clients split their samples among several models."""

    def is_used_by(self, recipe: Recipe) -> bool:
        bank: object = recipe.bank
        return isinstance(bank, SplitsSamples)

    def before_training(self, ctx: RoundContext) -> None:
        assert ctx.assignment is not None
        values = {
            name: np.asarray(rows, dtype=np.float32)
            for name, rows in ctx.assignment.broadcast.items()
        }
        messages = repeat_per_job({"bank": values}, ctx.cohort, ctx.assignment.clients)
        ctx.broadcast = {**ctx.broadcast, **messages}

    def finish_round(self, ctx: RoundContext) -> None:
        assert ctx.updates is not None
        bank_state = collect_split(ctx.server.bank_state, ctx.recipe, ctx.updates)
        ctx.server = ctx.server._replace(bank_state=bank_state)


def collect_split(bank_state: Any, recipe: Recipe, updates: Updates) -> Any:
    """Return the state of the bank after the uploads of clients that split their samples."""
    bank: object = recipe.bank
    if not isinstance(bank, SplitsSamples) or len(updates) == 0:
        return bank_state
    newest = np.flatnonzero(updates.is_newest)
    return bank.collect(
        bank_state, updates.clients[newest], select_uploads(updates, "bank", newest)
    )


def check_bank_assignment(
    assignment: BankAssignment, cohort: Ints, num_models: int, bank: object
) -> None:
    """Check what a bank returns."""
    mix, models = assignment.mix, assignment.models
    sums = mix.sum(axis=-1)
    is_valid = mix.ndim == 2 and mix.shape[1] == num_models and len(mix) >= 1
    is_valid = is_valid and assignment.is_new.shape == (len(mix),)
    is_valid = is_valid and (np.isclose(sums, 1) | ((sums == 0) & assignment.is_new)).all()
    is_valid = is_valid and assignment.clients.shape == models.shape
    is_valid = is_valid and np.array_equal(np.unique(assignment.clients), cohort)
    is_valid = is_valid and ((models >= 0) & (models < len(mix))).all()
    if is_valid:
        steps = np.diff(assignment.clients), np.diff(models)
        is_valid = bool(((steps[0] > 0) | ((steps[0] == 0) & (steps[1] > 0))).all())
    is_valid = is_valid and all(len(rows) == len(cohort) for rows in assignment.broadcast.values())
    if not is_valid:
        raise ConfigError(
            f"{type(bank).__name__}.assign must mix the {num_models} models of the bank with rows "
            "that sum to one (or to zero for a new random model), assign one or several models to "
            f"each of {len(cohort)} clients, ascending by client and model, and broadcast one row "
            f"per client; got a mix of shape {mix.shape}, clients {assignment.clients.tolist()} "
            f"and models {models.tolist()}."
        )
