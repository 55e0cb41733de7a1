"""Surveys: both engines give the same responses, and nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from thalweg.core.capabilities import SurveyContext
from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Ints, Job, Roster
from thalweg.engine.builders import make_federation
from thalweg.engine.plan import make_plan
from thalweg.federation import ClientContext, catch_up
from thalweg.selection import Available

CLIENTS = np.array([2, 5])


@dataclass(frozen=True)
class Everything(Available):
    """Surveys everything that a client can report, and counts the surveys."""

    sends_models: bool = True

    def choose_surveyed(self, roster: Roster, rng: np.random.Generator) -> Ints:
        return roster.present

    def init_counts(self, num_classes: int) -> Any:
        return np.zeros(num_classes + 1)

    def count_labels(self, label_counts: Any, labels: Ints) -> Any:
        return label_counts + np.bincount(labels, minlength=len(label_counts))

    def answer_survey(self, view: SurveyContext) -> tuple[Any, Mapping[str, Floats]]:
        look = view.probe_model(1)
        words = {
            "held": view.held.astype(float),
            "labels": view.labels(view.held).astype(float),
            "newest": view.newest.astype(float),
            "losses": look.losses(view.held).astype(float),
            "right": look.is_correct(view.held).astype(float),
            "gradient": look.gradient(view.held).astype(float),
            "moved": look.descend(view.held, 2, 0.5).params.astype(float),
            "chance": view.rng.random(2),
            "tally": view.label_counts,
            "rest": np.array([view.num_classes, view.num_models, view.lr, view.supply.total]),
        }
        label_counts = view.label_counts.copy()
        label_counts[-1] += 1
        return label_counts, words


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
    return make_federation(plan, data, net, workers=1), net, data


def survey(engine: str, *overrides: str, rnd: int = 0) -> tuple[Any, Any, Any]:
    place, net, data = federation(engine, *overrides)
    bank = np.stack([net.init(rng_for(seed, Draw.NET)) for seed in (0, 1)])
    return place, place.survey(CLIENTS, "selection", bank, rnd), data


def test_both_engines_give_the_same_survey_responses() -> None:
    _, ours, _ = survey("reference")
    _, theirs, _ = survey("fast")
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("absent", ["frozen", "collecting"])
def test_a_survey_uses_the_state_before_the_round(absent: str) -> None:
    place, words, data = survey("fast", f"world.absent={absent}", rnd=2)
    clients = place.client_pool.clients
    state = catch_up(ClientContext(clients, 2, 2), clients.new_client(2))
    assert words["held"][0].tolist() == state.rows.tolist()
    assert words["labels"][0].tolist() == data.y[state.rows].tolist()
    client_round = place.client_pool.start_round([Job(2)], 2)
    assert words["newest"][0].tolist() == client_round.arrivals[0].items.tolist()
    seen = 8 + (2 * 5 * 8 if absent == "collecting" else 0)  # two rounds of five ticks
    assert words["tally"][0].sum() == seen


def test_a_survey_changes_the_label_counts_only() -> None:
    place, _, _ = survey("fast")
    asked, never = place.client_pool.state(2), place.client_pool.clients.new_client(2)
    assert asked.label_counts[-1] == never.label_counts[-1] + 1
    for one, other in zip(
        asked._replace(label_counts=None), never._replace(label_counts=None), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    assert place.client_pool.changed == {2, 5}


def test_random_numbers_of_surveys_differ_by_client_and_round() -> None:
    place, words, _ = survey("fast")
    assert words["chance"][0].tolist() != words["chance"][1].tolist()
    bank = np.zeros((2, len(words["gradient"][0])), dtype=np.float32)
    assert (
        place.survey(CLIENTS, "selection", bank, 1)["chance"].tolist() != words["chance"].tolist()
    )
    assert (
        place.survey(CLIENTS, "selection", bank, 0)["chance"].tolist() == words["chance"].tolist()
    )


def test_a_stage_without_a_survey_is_rejected() -> None:
    place, net, _ = federation("fast")
    with pytest.raises(ConfigError, match="the bank policy OneModel has no survey"):
        place.survey(CLIENTS, "bank", np.zeros((1, net.num_params), dtype=np.float32), 0)


@dataclass(frozen=True)
class Peeks(Everything):
    """Uses a model although `sends_models` is False."""

    sends_models: bool = False


@pytest.mark.parametrize("engine", ["fast", "reference"])
def test_a_survey_cannot_use_a_model_that_was_not_sent(engine: str) -> None:
    place, net, _ = federation(engine, policy=Peeks())
    bank = np.zeros((2, net.num_params), dtype=np.float32)
    with pytest.raises(ConfigError, match=r"Peeks\.answer_survey .* sends_models"):
        place.survey(CLIENTS, "selection", bank, 0)


@dataclass(frozen=True)
class CountsHeld(Everything):
    sends_models: bool = False

    def answer_survey(self, view: SurveyContext) -> tuple[Any, Mapping[str, Floats]]:
        return view.label_counts, {"held": view.held.astype(float), "tally": view.label_counts}


@pytest.mark.parametrize(("recipe", "seen"), [("fedogd", 8 + 2 * 5 * 8), ("ode", 8)])
def test_without_a_model_a_memory_that_needs_it_keeps_arrivals_waiting(
    recipe: str, seen: int
) -> None:
    place, net, _ = federation(
        "reference", "world.absent=collecting", recipe=recipe, policy=CountsHeld()
    )
    bank = np.zeros((1, net.num_params), dtype=np.float32)
    words = place.survey(CLIENTS, "selection", bank, 2)
    assert words["tally"][0].sum() == seen
    place.train([Job(2)], bank, 2)
    assert place.client_pool.state(2).stream_round == 3
    assert place.client_pool.state(2).label_counts.sum() == 8 + 3 * 5 * 8
