"""Sessions on both engines and through bytes: who knows what, and what leaves no trace."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import plain
from contracts.sparing import mostly_slow
from engine.bytes_federation import BytesFederation, load
from engine.test_every_recipe import SMALL
from thalweg.aggregation import Previous
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Updates
from thalweg.engine.building import federation_of
from thalweg.engine.plan import Plan, make_plan
from thalweg.recipes.server import play_round
from thalweg.recipes.state import ServerState, new_server, serve
from thalweg.streams import Timetable

OVERRIDES = [*SMALL, "world.availability=1"]
# Clients 0 to 3 for two rounds, 4 to 7 for two, 0 to 3 again for one, then everybody.
STAYS = [(range(4), 0, 2), (range(4, 8), 2, 4), (range(4), 4, 5), (range(8), 5, 7)]
RECIPES = ["scaffold", "scaffold-released", "moon", "continuous", "fedacg", "fedacg+moon"]


def timetable() -> Timetable:
    rows = [(client, first, after) for who, first, after in STAYS for client in who]
    clients, first, after = (np.array(column) for column in zip(*rows, strict=True))
    return Timetable(8, 7, clients, first, after)


@dataclass(frozen=True)
class Rehearsing(Previous):
    """Goes on from the last model, after rehearsals from it that nobody shall notice."""

    count: int = 2
    moved: list[Floats32] = field(default_factory=list)

    def open(self, notes: None, last: Floats32, rehearse: Any) -> tuple[None, Floats32]:
        for _ in range(self.count):
            self.moved.append(rehearse(last, 0.5))
        return None, last


def plan_of(recipe: str, engine: str = "reference", count: int = 0, *overrides: str) -> Plan:
    plan = make_plan(
        recipe, "digits-partial", seed=2, engine=engine, overrides=[*OVERRIDES, *overrides]
    )
    return replace(plan, recipe=replace(plan.recipe, opening=Rehearsing(count))) if count else plan


def federation(plan: Plan, through: str = "") -> Any:
    data = load(plan.scenario.data, plan.seed)
    if through == "bytes":
        found: Any = BytesFederation(
            replace(plan, recipe=replace(plan.recipe, opening=Previous())), data
        )
    else:
        net = plan.scenario.net.build(data.input_shape, data.num_classes)
        found = federation_of(plan, data, net, workers=1)
    found.crowd.timetable = timetable()
    return found


def play(plan: Plan, place: Any, rounds: int = 7) -> tuple[ServerState, list[Updates]]:
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    server = new_server(plan.recipe, net.init(rng_for(plan.seed, Draw.NET)), 8, net.pieces)
    history = []
    for _ in range(rounds):
        server, updates = play_round(server, place, plan.recipe, plan.seed)
        assert updates is not None
        history.append(updates)
    return server, history


@pytest.mark.parametrize("recipe", RECIPES)
def test_both_engines_agree_through_sessions_and_rehearsals(recipe: str) -> None:
    fast, slow = plan_of(recipe, "fast", count=1), plan_of(recipe, "reference", count=1)
    ours, theirs = federation(fast), federation(slow)
    server, history = play(fast, ours)
    expected, expected_history = play(slow, theirs)
    np.testing.assert_allclose(server.bank, expected.bank, rtol=1e-4, atol=1e-5)
    for mine, other in zip(history, expected_history, strict=True):
        np.testing.assert_allclose(mine.deltas, other.deltas, rtol=1e-3, atol=2e-5)
        assert mine.said.keys() == other.said.keys()
        for name, words in mine.said.items():
            np.testing.assert_allclose(words, other.said[name], rtol=1e-3, atol=1e-3)
    for client, state in theirs.crowd.states.items():
        assert ours.crowd.states[client].session == state.session
        assert ours.crowd.states[client].rows.tolist() == state.rows.tolist()
    assert ours.crowd.states.keys() == theirs.crowd.states.keys()


@pytest.mark.parametrize("recipe", RECIPES)
def test_through_bytes_the_bits_are_the_same(recipe: str) -> None:
    plan = plan_of(recipe, count=1)
    ours, theirs = federation(plan, "bytes"), federation(plan)
    server, history = play(plan, ours)
    expected, expected_history = play(plan, theirs)
    assert plain(server) == plain(expected)
    for mine, other in zip(history, expected_history, strict=True):
        assert plain(vars(mine)) == plain(vars(other))
    for client, state in theirs.crowd.states.items():
        assert plain(ours.state(client)) == plain(state)
    assert ours.refused == []


@pytest.mark.parametrize("engine", mostly_slow(["fast", "reference"], "fast"))
@pytest.mark.parametrize("recipe", [*RECIPES, "sfedpo", "fedewc", "dpcs", "feddrift+fedcurv"])
def test_rehearsals_leave_no_trace(recipe: str, engine: str) -> None:
    opening = {} if "feddrift" in recipe else {"count": 2}  # several models go on as they are
    quiet, loud = plan_of(recipe, engine), plan_of(recipe, engine, **opening)
    ours, theirs = federation(loud), federation(quiet)
    server, history = play(loud, ours)
    expected, expected_history = play(quiet, theirs)
    assert server.bank.tobytes() == expected.bank.tobytes()
    assert plain(server._replace(opening=None)) == plain(expected._replace(opening=None))
    assert plain(ours.crowd.states) == plain(theirs.crowd.states)
    assert all(
        mine.deltas.tobytes() == other.deltas.tobytes()
        for mine, other in zip(history, expected_history, strict=True)
    )
    if opening:
        counts = [updates.remarks.get("rehearsals", 0) for updates in history]
        assert counts == [2, 0, 2, 0, 2, 2, 0]
        moved = loud.recipe.opening.moved  # type: ignore[attr-defined]
        assert len(moved) == 8, "four sessions, two rehearsals each"
        assert all(one.tobytes() != other.tobytes() for one, other in pairwise(moved))


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_dropout_and_images_of_a_rehearsal_are_its_own(engine: str) -> None:
    plan = plan_of("fedavg", engine, 2, "net=ham-cnn", "net.channels=[2, 2, 2]", "net.hidden=4")
    play(plan, federation(plan), rounds=1)
    first, second = plan.recipe.opening.moved  # type: ignore[attr-defined]
    assert first.tobytes() != second.tobytes()


def test_variates_begin_at_zero_with_every_session_and_count_its_members() -> None:
    plan = plan_of("scaffold")
    place = federation(plan)
    for rounds, members in ((2, 4), (4, 4), (5, 4), (7, 8)):
        place = federation(plan)
        server, history = play(plan, place, rounds)
        common = server.talks["objective"]
        assert common.num_members == members
        last = history[-1].clients
        own = np.stack([place.crowd.states[n].objective.values for n in last.tolist()])
        np.testing.assert_allclose(common.values, own.mean(0), rtol=1e-3, atol=1e-4)
    assert place.crowd.states[0].session == 3


def test_who_returns_in_another_session_has_forgotten_its_variate() -> None:
    plan = plan_of("scaffold")
    place = federation(plan)
    play(plan, place, rounds=5)
    _, history = play(plan, federation(plan), rounds=5)
    # In the first round of a session the corrections are zero: the variate is the change.
    for n, change in zip(
        history[4].clients.tolist(), history[4].said["objective.change"], strict=True
    ):
        assert place.crowd.states[n].objective.values.tobytes() == change.tobytes()


def test_the_first_session_of_the_continuous_baseline_is_fedavg_and_then_the_last_model_teaches() -> (
    None
):
    taught, plain_plan = plan_of("continuous"), plan_of("fedavg")
    ours, history = play(taught, federation(taught), rounds=3)
    before, plain_history = play(plain_plan, federation(plain_plan), rounds=2)
    _, third = play(plain_plan, federation(plain_plan), rounds=3)
    for mine, other in zip(history[:2], plain_history, strict=True):
        assert mine.deltas.tobytes() == other.deltas.tobytes()
    assert ours.talks["objective"].params.tobytes() == before.bank[0].tobytes()
    assert history[2].deltas.tobytes() != third[2].deltas.tobytes()
    assert history[2].bytes_down == 2 * third[2].bytes_down, "a teacher for everybody"


def test_momentum_at_the_server_ends_with_the_session_and_begins_from_the_model_in_use() -> None:
    plan = plan_of("fedacg")
    before, _ = play(plan, federation(plan), rounds=2)
    assert before.rules[0].values.any()
    assert serve(before, plan.recipe).models[0].tobytes() != before.bank[0].tobytes()
    place = federation(plan)
    seen: list[Floats32] = []
    train = place.train
    place.train = lambda jobs, bank, rnd, told: seen.append(bank[0]) or train(jobs, bank, rnd, told)
    play(plan, place, rounds=3)
    assert seen[1].tobytes() != serve(before, plan.recipe).models[0].tobytes()
    assert seen[2].tobytes() == serve(before, plan.recipe).models[0].tobytes()


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_the_learning_rate_decays_within_a_session_and_starts_again(engine: str) -> None:
    decay = ["local.decay=polynomial", "local.decay.floor=0.5", "local.decay.rounds=2"]
    overrides = ["ticks=1", "local.momentum=0", "local.batch_size=64", "memory=never"]
    plan, calm = (plan_of("fedavg", engine, 0, *overrides, *more) for more in (decay, []))
    falls = plan.local.pace(1)
    assert 0.5 < falls < 1
    place, other = federation(plan), federation(calm)
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    model = net.init(rng_for(plan.seed, Draw.NET))
    server = new_server(plan.recipe, model, 8)
    for rnd in range(5):
        start = server._replace(rnd=rnd, session=place.roster(rnd).session.number)
        _, slowed = play_round(start, place, plan.recipe, plan.seed)
        _, usual = play_round(start, other, calm.recipe, calm.seed)
        factor = 1.0 if rnd in (0, 2, 4) else falls
        np.testing.assert_allclose(slowed.deltas, factor * usual.deltas, rtol=1e-3, atol=1e-6)
