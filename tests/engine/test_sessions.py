"""Sessions and probe rounds on both engines and by bytes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from contracts.checkpoint import to_comparable
from contracts.slow_cases import mark_slow_except
from engine.bytes_federation import BytesFederation, load
from engine.recipe_runs import SMALL
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Updates
from thalweg.engine.builders import make_federation
from thalweg.engine.plan import Plan, make_plan
from thalweg.federation import ServerState, get_served_models, new_server, run_server_round
from thalweg.sessions import Presence, Previous, WarmStart
from thalweg.streams import Timetable

OVERRIDES = [*SMALL, "world.availability=1"]
# Clients 0 to 3 for two rounds, 4 to 7 for two, 0 to 3 again for one, then everybody.
STAYS = [(range(4), 0, 2), (range(4, 8), 2, 4), (range(4), 4, 5), (range(8), 5, 7)]
RECIPES = ["scaffold", "scaffold-released", "moon", "continuous", "fedacg", "fedacg+moon"]
QUICK = ("scaffold", "moon", "continuous", "fedacg")


def timetable() -> Timetable:
    rows = [(client, first, after) for who, first, after in STAYS for client in who]
    clients, first, after = (np.array(column) for column in zip(*rows, strict=True))
    return Timetable(8, 7, clients, first, after)


@dataclass(frozen=True)
class Rehearsing(Previous):
    """Start from the last model after probe rounds, which must not change any state."""

    count: int = 2
    moved: list[Floats32] = field(default_factory=list)

    def choose_start(
        self, state: None, last: Floats32, run_probe_round: Any
    ) -> tuple[None, Floats32]:
        for _ in range(self.count):
            self.moved.append(run_probe_round(last, 0.5))
        return None, last


def plan_of(recipe: str, engine: str = "reference", count: int = 0, *overrides: str) -> Plan:
    plan = make_plan(
        recipe, "digits-partial", seed=2, engine=engine, overrides=[*OVERRIDES, *overrides]
    )
    return (
        replace(plan, recipe=replace(plan.recipe, session_start=Rehearsing(count)))
        if count
        else plan
    )


def federation(plan: Plan, through: str = "") -> Any:
    data = load(plan.scenario.data, plan.seed)
    if through == "bytes":
        # `Rehearsing` cannot be sent; devices accept the probe rounds of a warm start.
        known = replace(
            plan.recipe, session_start=WarmStart(probe_rounds=2), session_trigger=Presence()
        )
        found: Any = BytesFederation(replace(plan, recipe=known), data)
    else:
        net = plan.scenario.net.build(data.input_shape, data.num_classes)
        found = make_federation(plan, data, net, workers=1)
    found.client_pool.timetable = timetable()
    return found


def play(plan: Plan, place: Any, rounds: int = 7) -> tuple[ServerState, list[Updates]]:
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    server = new_server(plan.recipe, net.init(rng_for(plan.seed, Draw.NET)), 8, net.param_slices)
    history = []
    for _ in range(rounds):
        server, updates = run_server_round(server, place, plan.recipe, plan.seed)
        assert updates is not None
        history.append(updates)
    return server, history


@cache
def play_reference(recipe: str) -> tuple[Any, ServerState, list[Updates]]:
    """Play with one probe round per session on the reference engine."""
    plan = plan_of(recipe, count=1)
    place = federation(plan)
    return place, *play(plan, place)


@pytest.mark.parametrize("recipe", mark_slow_except(RECIPES, *QUICK))
def test_both_engines_agree_on_sessions_and_probe_rounds(recipe: str) -> None:
    plan = plan_of(recipe, "fast", count=1)
    ours = federation(plan)
    server, history = play(plan, ours)
    theirs, expected, expected_history = play_reference(recipe)
    np.testing.assert_allclose(server.bank, expected.bank, rtol=1e-4, atol=1e-5)
    for mine, other in zip(history, expected_history, strict=True):
        np.testing.assert_allclose(mine.deltas, other.deltas, rtol=1e-3, atol=2e-5)
        assert mine.uploads.keys() == other.uploads.keys()
        for name, words in mine.uploads.items():
            np.testing.assert_allclose(words, other.uploads[name], rtol=1e-3, atol=1e-3)
    for client, state in theirs.client_pool.states.items():
        assert ours.client_pool.states[client].session == state.session
        assert ours.client_pool.states[client].rows.tolist() == state.rows.tolist()
    assert ours.client_pool.states.keys() == theirs.client_pool.states.keys()


@pytest.mark.parametrize("recipe", mark_slow_except(RECIPES, *QUICK))
def test_sessions_and_probe_rounds_give_the_same_bits_by_bytes(recipe: str) -> None:
    plan = plan_of(recipe, count=1)
    ours = federation(plan, "bytes")
    server, history = play(plan, ours)
    theirs, expected, expected_history = play_reference(recipe)
    assert to_comparable(server) == to_comparable(expected)
    for mine, other in zip(history, expected_history, strict=True):
        assert to_comparable(vars(mine)) == to_comparable(vars(other))
    for client, state in theirs.client_pool.states.items():
        assert to_comparable(ours.state(client)) == to_comparable(state)
    assert ours.rejected == []


@pytest.mark.parametrize("engine", mark_slow_except(["fast", "reference"], "fast"))
@pytest.mark.parametrize("recipe", [*RECIPES, "sfedpo", "fedewc", "dpcs", "feddrift+fedcurv"])
def test_probe_rounds_do_not_change_client_states(recipe: str, engine: str) -> None:
    session_start = {} if "feddrift" in recipe else {"count": 2}  # several models go on as they are
    quiet, loud = plan_of(recipe, engine), plan_of(recipe, engine, **session_start)
    ours, theirs = federation(loud), federation(quiet)
    server, history = play(loud, ours)
    expected, expected_history = play(quiet, theirs)
    assert server.bank.tobytes() == expected.bank.tobytes()
    assert to_comparable(server._replace(session_start=None)) == to_comparable(
        expected._replace(session_start=None)
    )
    assert to_comparable(ours.client_pool.states) == to_comparable(theirs.client_pool.states)
    assert all(
        mine.deltas.tobytes() == other.deltas.tobytes()
        for mine, other in zip(history, expected_history, strict=True)
    )
    if session_start:
        counts = [updates.extra_metrics.get("probe_rounds", 0) for updates in history]
        assert counts == [2, 0, 2, 0, 2, 2, 0]
        moved = loud.recipe.session_start.moved  # type: ignore[attr-defined]
        assert len(moved) == 8, "four sessions, two probe_rounds each"
        assert all(one.tobytes() != other.tobytes() for one, other in pairwise(moved))


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_probe_rounds_have_their_own_dropout_and_augmentation(engine: str) -> None:
    plan = plan_of("fedavg", engine, 2, "net=ham-cnn", "net.channels=[2, 2, 2]", "net.hidden=4")
    play(plan, federation(plan), rounds=1)
    first, second = plan.recipe.session_start.moved  # type: ignore[attr-defined]
    assert first.tobytes() != second.tobytes()


def test_control_variates_start_at_zero_in_every_session() -> None:
    plan = plan_of("scaffold")
    place = federation(plan)
    for rounds, members in ((2, 4), (4, 4), (5, 4), (7, 8)):
        place = federation(plan)
        server, history = play(plan, place, rounds)
        common = server.part_states["objective"]
        assert common.num_members == members
        last = history[-1].clients
        own = np.stack([place.client_pool.states[n].objective.values for n in last.tolist()])
        np.testing.assert_allclose(common.values, own.mean(0), rtol=1e-3, atol=1e-4)
    assert place.client_pool.states[0].session == 3


def test_a_client_that_returns_in_another_session_has_a_new_control_variate() -> None:
    plan = plan_of("scaffold")
    place = federation(plan)
    play(plan, place, rounds=5)
    _, history = play(plan, federation(plan), rounds=5)
    # In the first round of a session the corrections are zero: the variate is the change.
    for n, change in zip(
        history[4].clients.tolist(), history[4].uploads["objective.change"], strict=True
    ):
        assert place.client_pool.states[n].objective.values.tobytes() == change.tobytes()


def test_continuous_equals_fedavg_in_the_first_session_and_then_has_a_teacher() -> None:
    taught, plain_plan = plan_of("continuous"), plan_of("fedavg")
    ours, history = play(taught, federation(taught), rounds=3)
    before, plain_history = play(plain_plan, federation(plain_plan), rounds=2)
    _, third = play(plain_plan, federation(plain_plan), rounds=3)
    for mine, other in zip(history[:2], plain_history, strict=True):
        assert mine.deltas.tobytes() == other.deltas.tobytes()
    assert ours.part_states["objective"].params.tobytes() == before.bank[0].tobytes()
    assert history[2].deltas.tobytes() != third[2].deltas.tobytes()
    assert history[2].bytes_down == 2 * third[2].bytes_down, "a teacher for everybody"


def test_server_momentum_is_reset_at_the_start_of_a_session() -> None:
    plan = plan_of("fedacg")
    before, _ = play(plan, federation(plan), rounds=2)
    assert before.rules[0].values.any()
    assert get_served_models(before, plan.recipe).models[0].tobytes() != before.bank[0].tobytes()
    place = federation(plan)
    seen: list[Floats32] = []
    train = place.train
    place.train = lambda jobs, bank, rnd, broadcast: (
        seen.append(bank[0]) or train(jobs, bank, rnd, broadcast)
    )
    play(plan, place, rounds=3)
    assert seen[1].tobytes() != get_served_models(before, plan.recipe).models[0].tobytes()
    assert seen[2].tobytes() == get_served_models(before, plan.recipe).models[0].tobytes()


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_the_learning_rate_decays_within_a_session_and_starts_again(engine: str) -> None:
    decay = ["local.decay=polynomial", "local.decay.floor=0.5", "local.decay.rounds=2"]
    overrides = ["ticks=1", "local.momentum=0", "local.batch_size=64", "memory=never"]
    plan, calm = (plan_of("fedavg", engine, 0, *overrides, *more) for more in (decay, []))
    falls = plan.local.lr_scale(1)
    assert 0.5 < falls < 1
    place, other = federation(plan), federation(calm)
    data = load(plan.scenario.data, plan.seed)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    model = net.init(rng_for(plan.seed, Draw.NET))
    server = new_server(plan.recipe, model, 8)
    for rnd in range(5):
        start = server._replace(rnd=rnd, session=place.roster(rnd).session.number)
        _, slowed = run_server_round(start, place, plan.recipe, plan.seed)
        _, usual = run_server_round(start, other, calm.recipe, calm.seed)
        factor = 1.0 if rnd in (0, 2, 4) else falls
        np.testing.assert_allclose(slowed.deltas, factor * usual.deltas, rtol=1e-3, atol=1e-6)
