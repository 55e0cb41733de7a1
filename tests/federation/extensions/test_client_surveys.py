"""Survey responses of one client; surveys of several clients: tests/engine/test_survey.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.model_probes import FakeModelProbe
from thalweg.bank import FedRc
from thalweg.core.capabilities import SurveyContext
from thalweg.core.types import Floats, Ints, Roster
from thalweg.engine.builders import make_client_pool
from thalweg.engine.plan import make_plan
from thalweg.federation import (
    ClientContext,
    ClientProgram,
    SurveyRequest,
    catch_up,
    run_client_survey,
    start_round,
)


def clients(scenario: str, *overrides: str) -> ClientProgram:
    plan = make_plan("fedogd", scenario, seed=1, overrides=overrides)
    return make_client_pool(plan, plan.scenario.data.load(None, 1), 10).clients


@pytest.mark.parametrize("absent", ["frozen", "collecting"])
def test_newest_samples_are_those_of_the_next_tick(absent: str) -> None:
    them = clients("digits-partial", "capacity=8", f"world.absent={absent}")
    state = them.new_client(3)
    newest = them.newest(3, catch_up(ClientContext(them, 3, 2), state)).tolist()
    assert newest == start_round(ClientContext(them, 3, 2), state).arrivals[0].items.tolist()


def test_newest_samples_are_the_stored_ones_without_arrivals() -> None:
    them = clients("gaussian-mixture", "world.at_end=stop", "world.arrivals=10000")
    state = them.new_client(0)
    for rnd in range(2):
        client_round = start_round(ClientContext(them, 0, rnd), state)
        for _ in range(them.stream.ticks):
            client_round.observe()
        state = client_round.finish()
    assert them.newest(0, state).tolist() == state.rows.tolist()
    assert len(state.rows) > 0


class Noting(FedRc):
    """Records what a survey receives from a client."""

    sends_models = False

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present

    def answer_survey(self, view: SurveyContext) -> tuple[None, dict[str, Floats]]:
        assert view.since is not None
        return None, {
            "when": np.array([view.rnd, view.split.began], dtype=float),
            "since": np.bincount(view.since, minlength=2).astype(float),
        }


def test_survey_context_has_arrival_rounds_and_the_state_of_the_bank() -> None:
    plan = make_plan("fedrc", "digits-partial", seed=1, overrides=["capacity=8", "memory=fifo"])
    plan = replace(plan, recipe=replace(plan.recipe, bank=Noting()))
    them = make_client_pool(plan, plan.scenario.data.load(None, 1), 10).clients
    question = SurveyRequest(
        rnd=2, client=3, stage="bank", bank=np.empty((0, 10), dtype=np.float32)
    )
    _, words = run_client_survey(
        them, them.new_client(3), question, lambda params: FakeModelProbe([])
    )
    assert words["when"].tolist() == [2.0, -1.0]
    assert words["since"].tolist() == [8.0, 0.0]
