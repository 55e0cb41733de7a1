"""What the server remembers, and the models it has to offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from thalweg.aggregation import Mixes, Presents
from thalweg.core.types import Floats, Floats32, Ints, Piece
from thalweg.recipes.alarms import AlarmState, begin_watching
from thalweg.recipes.base import Recipe
from thalweg.recipes.door import NO_ORDERS
from thalweg.recipes.talks import talking


class ServerState(NamedTuple):
    """All that the server remembers between rounds."""

    rnd: int  # rounds played
    bank: Floats32  # (models, P)
    rules: list[Any]  # what the server rule remembers, per model
    times_here: Ints  # (N,)
    known: dict[str, Floats]  # (N,) last reports and (N, E) last answers by name; nan: none yet
    arrangement: Any = None  # what the bank's policy remembers
    session: int = -1  # number of the session; -1: none has begun, or there are none
    opening: Any = None  # what the opening of sessions remembers
    awaited: Ints = NO_ORDERS  # (n, 2) client and round of orders that nobody has answered yet
    drawn: int = 1  # models that have been drawn at random so far
    talks: dict[str, Any] = {}  # noqa: RUF012  never written to; what the server's halves of policies know, by stage
    alarm: AlarmState | None = None  # what watches the clients; none: nobody does


class Served(NamedTuple):
    """The models in use, and how many of the clients use each."""

    models: Floats32  # (models, P)
    shares: Floats  # (models,)
    mixtures: Floats | None = None  # (N, models) if clients use several models at once


def new_server(
    recipe: Recipe,
    model: Floats32,
    num_clients: int,
    pieces: Sequence[Piece] = (),
    num_classes: int = 0,
) -> ServerState:
    """The server before the first round, with one model, made of some tensors."""
    return ServerState(
        rnd=0,
        bank=model[None].copy(),
        rules=[recipe.server.init(len(model))],
        times_here=np.zeros(num_clients, dtype=np.int64),
        known={},
        arrangement=recipe.bank.init(num_clients, num_classes),
        opening=recipe.opening.init(model, pieces),
        talks={stage: part.begin(num_clients, len(model)) for stage, part in talking(recipe)},
        alarm=begin_watching(recipe, num_clients),
    )


def serve(server: ServerState, recipe: Recipe) -> Served:
    """What clients would be given to use now."""
    models = server.bank
    if isinstance(recipe.server, Presents):
        rows = zip(server.rules, server.bank, strict=True)
        models = np.stack([presented(recipe, rule, model) for rule, model in rows])
    bank: object = recipe.bank
    mixtures = bank.mixtures(server.arrangement, len(models)) if isinstance(bank, Mixes) else None
    return Served(models, recipe.bank.shares(server.arrangement, len(models)), mixtures)


def presented(recipe: Recipe, rule: Any, model: Floats32) -> Floats32:
    """The model to use: what the server rule makes of the one it goes on from."""
    return recipe.server.presented(rule, model) if isinstance(recipe.server, Presents) else model
