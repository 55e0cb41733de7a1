"""Clients answer questions before they train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import Asks, Look
from thalweg.core.types import Answers, Floats, Floats32, Ints, Supply
from thalweg.engine.crowd import Crowd
from thalweg.recipes.client import ClientState
from thalweg.recipes.federation import AskingStage

LookAt = Callable[[Floats32], Look]  # parameters (P,) that nobody trains

DRAWS = {
    "emphasis": Draw.EMPHASIS_ANSWER,
    "selection": Draw.SELECTION_ANSWER,
    "bank": Draw.BANK_ANSWER,
}


def surveyed(
    crowd: Crowd, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int, look_at: LookAt
) -> Answers:
    """The answers of some clients to a stage's question, as tables with a row for each."""
    policy = getattr(crowd.clients.recipe, stage)
    if not isinstance(policy, Asks):
        raise ConfigError(
            f"the {stage} {type(policy).__name__} asks nothing, so nobody can answer."
        )
    words = [_ask(crowd, policy, client, stage, bank, rnd, look_at) for client in clients.tolist()]
    return tabled(words, type(policy).__name__)


def tabled(words: list[Mapping[str, Floats]], who: str) -> Answers:
    """(K, E) tables of what K clients say; nan where one says nothing.

    >>> tabled([{"a": np.array([1.0])}, {}], "Rule")["a"].tolist()
    [[1.0], [nan]]
    """
    tables: dict[str, Floats] = {}
    for k, mine in enumerate(words):
        for name, vector in mine.items():
            vector = np.asarray(vector, dtype=np.float64)
            table = tables.setdefault(name, np.full((len(words), vector.size), np.nan))
            if vector.shape != (table.shape[1],):
                raise ConfigError(
                    f"{who}.answer must give vectors of one length for {name!r}, got shape "
                    f"{vector.shape} after {table.shape[1]} numbers of another client."
                )
            table[k] = vector
    return tables


def _ask(
    crowd: Crowd,
    policy: Asks,
    client: int,
    stage: AskingStage,
    bank: Floats32,
    rnd: int,
    look_at: LookAt,
) -> Mapping[str, Floats]:
    state = crowd.standing(client, rnd, look_at(bank[0]))
    view = _ClientView(crowd, client, state, bank, look_at, DRAWS[stage], rnd)
    tally, words = policy.answer(view)
    if stage == "selection" and tally is not state.tally:
        state = state._replace(tally=tally)
    if state is not crowd.states.get(client) and (stage == "selection" or state.lived):
        crowd.keep(client, state)
    return words


class _ClientView:
    """A client of this process, as a question sees it."""

    def __init__(
        self,
        crowd: Crowd,
        client: int,
        state: ClientState,
        bank: Floats32,
        look_at: LookAt,
        draw: Draw,
        rnd: int,
    ) -> None:
        self._crowd, self._client, self._state = crowd, client, state
        self._bank, self._look_at = bank, look_at
        self.rng = rng_for(crowd.clients.seed, draw, rnd, client)
        self.num_classes, self.num_models = crowd.clients.num_classes, len(bank)
        self.lr, self.tally = crowd.clients.local.lr, state.tally

    tally: Any

    @cached_property
    def held(self) -> Ints:
        return self._state.rows.astype(np.int64)

    @cached_property
    def newest(self) -> Ints:
        return self._crowd.newest(self._client, self._state)

    @property
    def supply(self) -> Supply:
        return self._crowd.clients.world.supply(self._client)

    def labels(self, rows: Ints) -> Ints:
        return self._crowd.clients.labels.take(rows)

    def look(self, model: int = 0) -> Look:
        return self._look_at(self._bank[model])
