"""The client's half of a question: it answers before anybody trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import Asks, Look
from thalweg.core.types import Floats, Floats32, Ints, Supply
from thalweg.recipes.client import Clients, ClientState
from thalweg.recipes.keeping import caught_up
from thalweg.recipes.messages import Question

LookAt = Callable[[Floats32], Look]  # parameters (P,) that nobody trains

DRAWS = {
    "emphasis": Draw.EMPHASIS_ANSWER,
    "selection": Draw.SELECTION_ANSWER,
    "bank": Draw.BANK_ANSWER,
}


def answered(
    clients: Clients, state: ClientState, question: Question, look_at: LookAt
) -> tuple[ClientState, Mapping[str, Floats]]:
    """One client's state afterwards, and what it says."""
    client, bank = question.client, question.bank
    look = look_at(bank[0]) if len(bank) else None
    state = caught_up(clients, client, state, question.rnd, look)
    policy: Asks = getattr(clients.recipe, question.stage)
    tally, words = policy.answer(_ClientView(clients, state, question, look_at))
    if question.stage == "selection" and tally is not state.tally:
        state = state._replace(tally=tally)
    return state, words


class _ClientView:
    """A client, as a question sees it (`core.talk.View`)."""

    def __init__(
        self, clients: Clients, state: ClientState, question: Question, look_at: LookAt
    ) -> None:
        self._clients, self._client, self._state = clients, question.client, state
        self._question, self._look_at = question, look_at
        draw = DRAWS[question.stage]
        self.rng = rng_for(clients.seed, draw, question.rnd, question.client)
        self.num_classes, self.num_models = clients.num_classes, len(question.bank)
        self.lr, self.tally, self.division = clients.local.lr, state.tally, state.division
        self.rnd = question.rnd

    tally: Any
    division: Any

    @cached_property
    def held(self) -> Ints:
        return self._state.rows.astype(np.int64)

    @cached_property
    def since(self) -> Ints | None:
        since = self._state.since
        return None if since is None else since.astype(np.int64)

    @cached_property
    def newest(self) -> Ints:
        return self._clients.newest(self._client, self._state)

    @property
    def supply(self) -> Supply:
        return self._clients.stream.supply(self._client)

    def labels(self, rows: Ints) -> Ints:
        return self._clients.labels.take(rows)

    def look(self, model: int = 0) -> Look:
        if self.num_models == 0:
            policy = getattr(self._clients.recipe, self._question.stage)
            raise ConfigError(
                f"{type(policy).__name__}.answer looks at a model, but none came with the question; "
                "set shows_models to true, so that clients are sent the bank."
            )
        return self._look_at(self._question.bank[model])
