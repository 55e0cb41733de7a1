"""The state of the server between rounds, and the models that clients would use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thalweg.aggregation import has_eval_model
from thalweg.bank import MixesModels
from thalweg.core.mixtures import Mixtures
from thalweg.core.types import Floats, Floats32, Ints, ParamSlice
from thalweg.federation.extensions.alarms import AlarmState, init_alarms
from thalweg.federation.extensions.staleness import NO_REQUESTS
from thalweg.recipes.base import Recipe
from thalweg.recipes.compatibility import iter_server_parts


class ServerState(NamedTuple):
    """The state of the server between rounds."""

    rnd: int  # rounds that are over
    bank: Floats32  # (models, P)
    rules: list[Any]  # the state of the server rule for each model
    times_present: Ints  # (N,) rounds in which each client was present
    known: dict[str, Floats]  # (N,) last reports and (N, E) last survey responses; nan: none yet
    bank_state: Any = None  # of the bank policy
    session: int = -1  # number of the session; -1: none has started, or there are none
    session_start: Any = None  # the state of the session start policy
    open_requests: Ints = NO_REQUESTS  # (n, 2) client and round of unanswered requests
    num_drawn_models: int = 1  # random models drawn so far
    part_states: dict[str, Any] = {}  # noqa: RUF012  never written to; server parts by stage
    alarm: AlarmState | None = None  # none: the recipe has no alarm
    session_trigger: Any = None  # the state of the policy that opens sessions; none: no policy
    num_buffers: int = 0  # values at the end of a model that are averaged, such as statistics


class ServedModels(NamedTuple):
    """The models in use, and the share of clients that use each."""

    models: Floats32  # (models, P)
    shares: Floats  # (models,)
    mixtures: Mixtures | None = None  # if clients mix several models


def new_server(
    recipe: Recipe,
    model: Floats32,
    num_clients: int,
    pieces: Sequence[ParamSlice] = (),
    num_classes: int = 0,
    num_buffers: int = 0,
) -> ServerState:
    """Return the state before the first round, with one model (P,).

    `num_buffers` is that of the net: `Net.num_buffers`.
    """
    return ServerState(
        rnd=0,
        bank=model[None].copy(),
        rules=[recipe.server.init(len(model))],
        times_present=np.zeros(num_clients, dtype=np.int64),
        known={},
        bank_state=recipe.bank.init(num_clients, num_classes),
        session_start=recipe.session_start.init(model, pieces),
        part_states={
            stage: policy.init_server(num_clients, len(model))
            for stage, policy in iter_server_parts(recipe)
        },
        alarm=init_alarms(recipe, num_clients),
        session_trigger=(
            None if recipe.session_trigger is None else recipe.session_trigger.init(num_clients)
        ),
        num_buffers=num_buffers,
    )


def get_served_models(server: ServerState, recipe: Recipe) -> ServedModels:
    """Return the models that clients would use now."""
    models = server.bank
    if has_eval_model(recipe.server):
        rows = zip(server.rules, server.bank, strict=True)
        models = np.stack([eval_model(recipe, rule, model) for rule, model in rows])
    bank: object = recipe.bank
    mixtures = None
    if isinstance(bank, MixesModels):
        mixtures = Mixtures.from_rows(bank.mixtures(server.bank_state, len(models)))
    return ServedModels(models, recipe.bank.shares(server.bank_state, len(models)), mixtures)


def eval_model(recipe: Recipe, rule: Any, model: Floats32) -> Floats32:
    """Return the model (P,) for predictions, which may differ from the model in training."""
    return recipe.server.eval_model(rule, model) if has_eval_model(recipe.server) else model
