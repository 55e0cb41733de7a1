"""What a client tells of itself when it is asked; whole questions are in tests/engine/test_survey.py."""

from __future__ import annotations

import pytest

from thalweg.engine.building import crowd_of
from thalweg.engine.plan import make_plan
from thalweg.recipes.client import Clients
from thalweg.recipes.keeping import caught_up
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
