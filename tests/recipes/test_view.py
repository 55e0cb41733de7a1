"""What a client tells of itself when it is asked; whole questions are in tests/engine/test_survey.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from contracts.looks import FakeLook
from thalweg.aggregation import FedRc
from thalweg.core.talk import View
from thalweg.core.types import Floats, Ints, Roster
from thalweg.engine.building import crowd_of
from thalweg.engine.plan import make_plan
from thalweg.recipes.client import Clients
from thalweg.recipes.keeping import caught_up
from thalweg.recipes.messages import Question
from thalweg.recipes.view import answered
from thalweg.recipes.visit import enter


def clients(scenario: str, *overrides: str) -> Clients:
    plan = make_plan("fedogd", scenario, seed=1, overrides=overrides)
    return crowd_of(plan, plan.scenario.data.load(None, 1), 10).clients


@pytest.mark.parametrize("absent", ["frozen", "collecting"])
def test_the_newest_samples_are_those_of_the_first_tick_to_come(absent: str) -> None:
    them = clients("digits-partial", "capacity=8", f"world.absent={absent}")
    state = them.newborn(3)
    newest = them.newest(3, caught_up(them, 3, state, 2)).tolist()
    assert newest == enter(them, 3, state, 2).arrivals[0].items.tolist()


def test_without_arrivals_the_newest_samples_are_the_held_ones() -> None:
    them = clients("gaussian-mixture", "world.at_end=silence", "world.arrivals=10000")
    state = them.newborn(0)
    for rnd in range(2):
        visit = enter(them, 0, state, rnd)
        for _ in range(them.stream.ticks):
            visit.observe()
        state = visit.leave()
    assert them.newest(0, state).tolist() == state.rows.tolist()
    assert len(state.rows) > 0


class Noting(FedRc):
    """Notes what a question sees of a client."""

    shows_models = False

    def whom(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.here

    def answer(self, view: View) -> tuple[None, dict[str, Floats]]:
        assert view.since is not None
        return None, {
            "when": np.array([view.rnd, view.division.began], dtype=float),
            "since": np.bincount(view.since, minlength=2).astype(float),
        }


def test_a_question_sees_when_samples_came_and_what_the_bank_keeps() -> None:
    plan = make_plan("fedrc", "digits-partial", seed=1, overrides=["capacity=8", "memory=fifo"])
    plan = replace(plan, recipe=replace(plan.recipe, bank=Noting()))
    them = crowd_of(plan, plan.scenario.data.load(None, 1), 10).clients
    question = Question(rnd=2, client=3, stage="bank", bank=np.empty((0, 10), dtype=np.float32))
    _, words = answered(them, them.newborn(3), question, lambda params: FakeLook([]))
    assert words["when"].tolist() == [2.0, -1.0]
    assert words["since"].tolist() == [8.0, 0.0]
