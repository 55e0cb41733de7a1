"""Clients answer questions, on both engines, and nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import View
from thalweg.core.types import Floats, Ints, Job, Roster
from thalweg.engine.building import federation_of
from thalweg.engine.plan import make_plan
from thalweg.recipes.keeping import caught_up
from thalweg.selection import Available

CLIENTS = np.array([2, 5])


@dataclass(frozen=True)
class Everything(Available):
    """Asks for all there is, and counts how often it did."""

    shows_models: bool = True

    def whom(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.here

    def begin_tally(self, num_classes: int) -> Any:
        return np.zeros(num_classes + 1)

    def count(self, tally: Any, labels: Ints) -> Any:
        return tally + np.bincount(labels, minlength=len(tally))

    def answer(self, view: View) -> tuple[Any, Mapping[str, Floats]]:
        look = view.look(1)
        words = {
            "held": view.held.astype(float),
            "labels": view.labels(view.held).astype(float),
            "newest": view.newest.astype(float),
            "losses": look.losses(view.held).astype(float),
            "right": look.right(view.held).astype(float),
            "gradient": look.gradient(view.held).astype(float),
            "moved": look.at(look.params() + 1).losses(view.held).astype(float),
            "chance": view.rng.random(2),
            "tally": view.tally,
            "rest": np.array([view.num_classes, view.num_models, view.lr, view.supply.total]),
        }
        tally = view.tally.copy()
        tally[-1] += 1
        return tally, words


def federation(
    engine: str,
    *overrides: str,
    recipe: str = "fedogd",
    policy: Any = Everything(),  # noqa: B008
) -> Any:
    plan = make_plan(
        recipe, "digits-partial", seed=1, engine=engine, overrides=["capacity=8", *overrides]
    )
    plan = replace(plan, recipe=replace(plan.recipe, selection=policy))
    data = plan.scenario.data.load(None, 1)
    net = plan.scenario.net.build(data.input_shape, data.num_classes)
    return federation_of(plan, data, net, workers=1), net, data


def survey(engine: str, *overrides: str, rnd: int = 0) -> tuple[Any, Any, Any]:
    place, net, data = federation(engine, *overrides)
    bank = np.stack([net.init(rng_for(seed, Draw.NET)) for seed in (0, 1)])
    return place, place.survey(CLIENTS, "selection", bank, rnd), data


def test_both_engines_give_the_same_answers() -> None:
    _, ours, _ = survey("reference")
    _, theirs, _ = survey("fast")
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("absent", ["frozen", "collecting"])
def test_a_client_answers_about_what_it_has_before_the_round(absent: str) -> None:
    place, words, data = survey("fast", f"world.absent={absent}", rnd=2)
    clients = place.crowd.clients
    state = caught_up(clients, 2, clients.newborn(2), 2)
    assert words["held"][0].tolist() == state.rows.tolist()
    assert words["labels"][0].tolist() == data.y[state.rows].tolist()
    visit = place.crowd.enter([Job(2)], 2)
    assert words["newest"][0].tolist() == visit.arrivals[0].items.tolist()
    seen = 8 + (2 * 5 * 8 if absent == "collecting" else 0)  # two rounds of five ticks
    assert words["tally"][0].sum() == seen


def test_asking_changes_the_tally_and_nothing_else() -> None:
    place, _, _ = survey("fast")
    asked, never = place.crowd.state(2), place.crowd.clients.newborn(2)
    assert asked.tally[-1] == never.tally[-1] + 1
    for one, other in zip(asked._replace(tally=None), never._replace(tally=None), strict=True):
        np.testing.assert_array_equal(one, other)
    assert place.crowd.changed == {2, 5}


def test_every_client_and_every_round_has_its_own_chance() -> None:
    place, words, _ = survey("fast")
    assert words["chance"][0].tolist() != words["chance"][1].tolist()
    bank = np.zeros((2, len(words["gradient"][0])), dtype=np.float32)
    assert (
        place.survey(CLIENTS, "selection", bank, 1)["chance"].tolist() != words["chance"].tolist()
    )
    assert (
        place.survey(CLIENTS, "selection", bank, 0)["chance"].tolist() == words["chance"].tolist()
    )


def test_a_stage_that_asks_nothing_cannot_be_answered() -> None:
    place, net, _ = federation("fast")
    with pytest.raises(ConfigError, match="asks nothing"):
        place.survey(CLIENTS, "bank", np.zeros((1, net.num_params), dtype=np.float32), 0)


@dataclass(frozen=True)
class Peeks(Everything):
    """Looks at a model that it does not want to be sent."""

    shows_models: bool = False


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_a_model_that_is_not_sent_cannot_be_looked_at(engine: str) -> None:
    place, net, _ = federation(engine, policy=Peeks())
    bank = np.zeros((2, net.num_params), dtype=np.float32)
    with pytest.raises(ConfigError, match=r"Peeks\.answer looks at a model, but none came"):
        place.survey(CLIENTS, "selection", bank, 0)


@dataclass(frozen=True)
class CountsHeld(Everything):
    shows_models: bool = False

    def answer(self, view: View) -> tuple[Any, Mapping[str, Floats]]:
        return view.tally, {"held": view.held.astype(float), "tally": view.tally}


@pytest.mark.parametrize(("recipe", "seen"), [("fedogd", 8 + 2 * 5 * 8), ("ode", 8)])
def test_without_a_model_a_memory_that_looks_at_it_lets_what_came_wait(
    recipe: str, seen: int
) -> None:
    place, net, _ = federation(
        "reference", "world.absent=collecting", recipe=recipe, policy=CountsHeld()
    )
    bank = np.zeros((1, net.num_params), dtype=np.float32)
    words = place.survey(CLIENTS, "selection", bank, 2)
    assert words["tally"][0].sum() == seen
    place.train([Job(2)], bank, 2)
    assert place.crowd.state(2).lived == 3
    assert place.crowd.state(2).tally.sum() == 8 + 3 * 5 * 8
