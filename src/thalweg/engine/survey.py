"""Clients of this process answer questions before they train."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg.core.capabilities import Surveys
from thalweg.core.errors import ConfigError
from thalweg.core.types import Floats, Floats32, Ints, SurveyResponses
from thalweg.engine.client_pool import ClientPool
from thalweg.federation.base import SurveyStage
from thalweg.federation.client_survey import MakeProbe, run_client_survey
from thalweg.federation.messages import SurveyRequest
from thalweg.federation.tables import tabulate_answers


def run_survey(
    client_pool: ClientPool,
    clients: Ints,
    stage: SurveyStage,
    bank: Floats32,
    rnd: int,
    look_at: MakeProbe,
) -> SurveyResponses:
    """The answers of some clients to a stage's question, as tables with a row for each."""
    policy = getattr(client_pool.clients.recipe, stage)
    if not isinstance(policy, Surveys):
        raise ConfigError(
            f"the {stage} {type(policy).__name__} asks nothing, so nobody can answer."
        )
    answers: list[Mapping[str, Floats]] = []
    for client in clients.tolist():
        question = SurveyRequest(rnd, client, stage, bank if policy.sends_models else bank[:0])
        state, words = run_client_survey(
            client_pool.clients, client_pool.state(client), question, look_at
        )
        answers.append(words)
        if stage == "selection" or state.lived:  # else it is as it was born
            client_pool.set_state(client, state)
    return tabulate_answers(answers, type(policy).__name__)
