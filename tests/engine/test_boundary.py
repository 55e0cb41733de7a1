"""Every recipe gives the same bits if its clients are reached through bytes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import plain
from engine.bytes_federation import BytesFederation, Fate, arrives, load
from engine.test_every_recipe import COMBINED, ODD, SMALL, world_for
from thalweg.core.errors import Diverged
from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import Told
from thalweg.core.types import Floats32, Job, Updates
from thalweg.engine.loop import _federation
from thalweg.engine.plan import Plan, make_plan
from thalweg.recipes import RECIPES
from thalweg.recipes.messages import Order
from thalweg.recipes.server import ServerState, new_server, play_round

MANY = ["world.availability=0.6"]  # several clients in most rounds


def plan_of(recipe: str, overrides: Sequence[str] = (), scenario: str = "digits-partial") -> Plan:
    return make_plan(recipe, scenario, seed=2, engine="reference", overrides=overrides)


def bytes_federation(plan: Plan, fate: Fate = arrives) -> BytesFederation:
    return BytesFederation(plan, load(plan.scenario.data, plan.seed), fate)


def reference(plan: Plan) -> Any:
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    return _federation(plan, data, net, workers=1)


def play(plan: Plan, federation: Any, rounds: int = 3) -> tuple[ServerState, list[Updates | None]]:
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    num_clients = len(federation.roster(0).availability)
    server = new_server(plan.recipe, net.init(rng_for(plan.seed, Draw.NET)), num_clients)
    history = []
    for _ in range(rounds):
        server, updates = play_round(server, federation, plan.recipe, plan.seed)
        history.append(updates)
    return server, history


def check_same(plan: Plan, ours: Any, theirs: Any, rounds: int = 3) -> list[Updates | None]:
    """Models, all that the server remembers, every update and every metric: to the bit."""
    server, history = play(plan, ours, rounds)
    expected, expected_history = play(plan, theirs, rounds)
    assert plain(server) == plain(expected)
    for updates, others in zip(history, expected_history, strict=True):
        assert plain(updates and vars(updates)) == plain(others and vars(others))
    return history


def check_crosses(plan: Plan, rounds: int = 3) -> None:
    ours, theirs = bytes_federation(plan), reference(plan)
    history = check_same(plan, ours, theirs, rounds)
    assert any(updates is not None and len(updates) > 1 for updates in history)
    for client, state in theirs.crowd.states.items():
        assert plain(ours.state(client)) == plain(state), f"client {client} remembers something else"
    assert ours.refused == []


@pytest.mark.parametrize("recipe", [*RECIPES, *COMBINED])
def test_every_recipe_crosses_the_boundary(recipe: str) -> None:
    scenario, overrides = world_for(recipe)
    more = MANY if scenario == "digits-partial" else []
    check_crosses(plan_of(recipe, [*overrides, *more], scenario))


@pytest.mark.parametrize("case", ODD)
def test_odd_cases_cross_the_boundary(case: str) -> None:
    recipe, overrides = ODD[case]
    check_crosses(plan_of(recipe, [*SMALL, *MANY, *overrides]), rounds=4)
