"""The client's half of a question: it answers before anybody trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from thalweg.core.capabilities import ModelProbe, Surveys
from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints, Supply
from thalweg.federation.client_state import ClientProgram, ClientState
from thalweg.federation.ingest import catch_up
from thalweg.federation.messages import SurveyRequest

MakeProbe = Callable[[Floats32], ModelProbe]  # parameters (P,) that nobody trains

SURVEY_DRAWS = {
    "sample_weights": Draw.SAMPLE_WEIGHTS_ANSWER,
    "selection": Draw.SELECTION_ANSWER,
    "bank": Draw.BANK_ANSWER,
}


def run_client_survey(
    clients: ClientProgram, state: ClientState, question: SurveyRequest, look_at: MakeProbe
) -> tuple[ClientState, Mapping[str, Floats]]:
    """One client's state afterwards, and what it says."""
    client, bank = question.client, question.bank
    look = look_at(bank[0]) if len(bank) else None
    state = catch_up(clients, client, state, question.rnd, look)
    policy: Surveys = getattr(clients.recipe, question.stage)
    label_counts, words = policy.answer_survey(
        _ClientSurveyContext(clients, state, question, look_at)
    )
    if question.stage == "selection" and label_counts is not state.label_counts:
        state = state._replace(label_counts=label_counts)
    return state, words


class _ClientSurveyContext:
    """A client, as a question sees it (`core.talk.SurveyContext`)."""

    def __init__(
        self,
        clients: ClientProgram,
        state: ClientState,
        question: SurveyRequest,
        look_at: MakeProbe,
    ) -> None:
        self._clients, self._client, self._state = clients, question.client, state
        self._question, self._look_at = question, look_at
        draw = SURVEY_DRAWS[question.stage]
        self.rng = rng_for(clients.seed, draw, question.rnd, question.client)
        self.num_classes, self.num_models = clients.num_classes, len(question.bank)
        self.lr, self.label_counts, self.split = clients.local.lr, state.label_counts, state.split
        self.rnd = question.rnd

    label_counts: Any
    split: Any

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

    def probe_model(self, model: int = 0) -> ModelProbe:
        if self.num_models == 0:
            policy = getattr(self._clients.recipe, self._question.stage)
            raise ConfigError(
                f"{type(policy).__name__}.answer_survey looks at a model, but none came with the question; "
                "set sends_models to true, so that clients are sent the bank."
            )
        return self._look_at(self._question.bank[model])
