"""Clients of this process answer questions before they train."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg.core.errors import ConfigError
from thalweg.core.talk import Asks
from thalweg.core.types import Answers, Floats, Floats32, Ints
from thalweg.engine.crowd import Crowd
from thalweg.recipes.federation import AskingStage
from thalweg.recipes.messages import Question
from thalweg.recipes.tables import tabled
from thalweg.recipes.view import LookAt, answered


def surveyed(
    crowd: Crowd, clients: Ints, stage: AskingStage, bank: Floats32, rnd: int, look_at: LookAt
) -> Answers:
    """The answers of some clients to a stage's question, as tables with a row for each."""
    policy = getattr(crowd.clients.recipe, stage)
    if not isinstance(policy, Asks):
        raise ConfigError(
            f"the {stage} {type(policy).__name__} asks nothing, so nobody can answer."
        )
    said: list[Mapping[str, Floats]] = []
    for client in clients.tolist():
        question = Question(rnd, client, stage, bank if policy.shows_models else bank[:0])
        state, words = answered(crowd.clients, crowd.state(client), question, look_at)
        said.append(words)
        if stage == "selection" or state.lived:  # else it is as it was born
            crowd.keep(client, state)
    return tabled(said, type(policy).__name__)
