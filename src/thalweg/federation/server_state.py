"""What the server remembers, and the models it has to offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thalweg.aggregation import HasEvalModel
from thalweg.bank import MixesModels
from thalweg.core.types import Floats, Floats32, Ints, ParamSlice
from thalweg.federation.extensions.alarms import AlarmState, init_alarms
from thalweg.federation.validation import NO_REQUESTS
from thalweg.recipes.base import Recipe
from thalweg.recipes.compatibility import iter_server_halves


class ServerState(NamedTuple):
    """All that the server remembers between rounds."""

    rnd: int  # rounds played
    bank: Floats32  # (models, P)
    rules: list[Any]  # what the server rule remembers, per model
    times_present: Ints  # (N,)
    known: dict[str, Floats]  # (N,) last reports and (N, E) last answers by name; nan: none yet
    bank_state: Any = None  # what the bank's policy remembers
    session: int = -1  # number of the session; -1: none has begun, or there are none
    session_start: Any = None  # what the opening of sessions remembers
    open_requests: Ints = (
        NO_REQUESTS  # (n, 2) client and round of orders that nobody has answered yet
    )
    num_drawn_models: int = 1  # models that have been drawn at random so far
    half_states: dict[str, Any] = {}  # noqa: RUF012  never written to; what the server's halves of policies know, by stage
    alarm: AlarmState | None = None  # what watches the clients; none: nobody does


class ServedModels(NamedTuple):
    """The models in use, and how many of the clients use each."""

    models: Floats32  # (models, P)
    shares: Floats  # (models,)
    mixtures: Floats | None = None  # (N, models) if clients use several models at once


def new_server(
    recipe: Recipe,
    model: Floats32,
    num_clients: int,
    pieces: Sequence[ParamSlice] = (),
    num_classes: int = 0,
) -> ServerState:
    """The server before the first round, with one model, made of some tensors."""
    return ServerState(
        rnd=0,
        bank=model[None].copy(),
        rules=[recipe.server.init(len(model))],
        times_present=np.zeros(num_clients, dtype=np.int64),
        known={},
        bank_state=recipe.bank.init(num_clients, num_classes),
        session_start=recipe.session_start.init(model, pieces),
        half_states={
            stage: part.init_server(num_clients, len(model))
            for stage, part in iter_server_halves(recipe)
        },
        alarm=init_alarms(recipe, num_clients),
    )


def get_served_models(server: ServerState, recipe: Recipe) -> ServedModels:
    """What clients would be given to use now."""
    models = server.bank
    if isinstance(recipe.server, HasEvalModel):
        rows = zip(server.rules, server.bank, strict=True)
        models = np.stack([eval_model(recipe, rule, model) for rule, model in rows])
    bank: object = recipe.bank
    mixtures = (
        bank.mixtures(server.bank_state, len(models)) if isinstance(bank, MixesModels) else None
    )
    return ServedModels(models, recipe.bank.shares(server.bank_state, len(models)), mixtures)


def eval_model(recipe: Recipe, rule: Any, model: Floats32) -> Floats32:
    """The model to use: what the server rule makes of the one it goes on from."""
    return (
        recipe.server.eval_model(rule, model) if isinstance(recipe.server, HasEvalModel) else model
    )
