"""Recipes are built, overridden, stored and checked."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import tomli_w

from thalweg.aggregation import Equal, ShiftAware
from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.core.types import Floats32, Ints
from thalweg.drift import PageHinkley
from thalweg.forecast import Auto, Exact
from thalweg.local import LocalTraining, TaskLoss
from thalweg.memory import Dds, Fifo, Reservoir
from thalweg.recipes import RECIPES, Recipe, fedavg, sfedpo
from thalweg.selection import Available, Uniform
from thalweg.sessions import WarmStart


def test_a_recipe_needs_only_a_name_and_a_memory() -> None:
    plain = Recipe("mine", Fifo())
    assert plain.weights == Equal()
    assert plain.forecast == Auto()
    assert plain.local is None


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_survives_a_toml_file(name: str) -> None:
    recipe = RECIPES[name]()
    text = tomli_w.dumps(to_dict(recipe))
    assert from_dict(Recipe, tomllib.loads(text)) == recipe


def test_local_training_and_an_infinite_scale_survive_a_toml_file() -> None:
    local = LocalTraining(lr=0.5, batch_size=8, steps=2)
    start = WarmStart(scale=math.inf, history=5)
    recipe = replace(RECIPES["warmstart"](), local=local, session_start=start)
    assert from_dict(Recipe, tomllib.loads(tomli_w.dumps(to_dict(recipe)))) == recipe


def test_overrides_give_the_same_variant_as_replace() -> None:
    replaced = replace(sfedpo(), memory=Dds(budget=0.3, offset=0.35), weights=Equal())
    assert with_overrides(sfedpo(), ["memory.budget=0.3", "weights=equal"]) == replaced
    assert with_overrides(sfedpo(), ["memory=reservoir"]).memory == Reservoir()
    assert with_overrides(sfedpo(), ["weights.slope=1.5"]).weights == ShiftAware(slope=1.5)


@pytest.mark.parametrize(
    ("assignment", "meant"),
    [
        ("memory=reservor", "reservoir"),
        ("memory.bugdet=0.3", "budget"),
        ("wieghts=equal", "weights"),
        ("forecast=bayes", "bayesian"),
    ],
)
def test_a_misspelled_override_is_rejected_with_a_suggestion(assignment: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=rf"Did you mean '{meant}'\?"):
        with_overrides(sfedpo(), [assignment])


def test_an_impossible_value_in_a_file_is_rejected() -> None:
    with pytest.raises(ConfigError, match="budget must lie in"):
        from_dict(Recipe, {"name": "mine", "memory": {"kind": "dds", "budget": 2.0}})


@pytest.mark.parametrize(
    "memory", [Reservoir, "reservoir", {"kind": "reservoir"}, Reservoir()], ids=repr
)
def test_a_class_a_name_and_a_mapping_are_converted_to_an_instance(memory: Any) -> None:
    assert Recipe("mine", memory=memory).memory == Reservoir()
    assert replace(fedavg(), memory=memory).memory == Reservoir()


def test_components_of_every_stage_are_converted() -> None:
    recipe = Recipe("mine", "fifo", selection=Uniform, alarm="page-hinkley", forecast="exact")  # type: ignore[arg-type]
    assert (recipe.selection, recipe.alarm) == (Uniform(), PageHinkley())
    assert recipe.forecast == Exact()
    assert replace(recipe, alarm="none").alarm is None  # type: ignore[arg-type]
    local = {"lr": 0.1, "steps": 3}
    assert replace(recipe, local=local).local == LocalTraining(lr=0.1, steps=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stage", "value", "message"),
    [
        ("memory", "reservor", r"unknown memory 'reservor'.*Did you mean 'reservoir'\?"),
        ("memory", 3, "memory: expected a kind, one of .*, got 3"),
        ("memory", None, "memory=NoneType: expected a MemoryPolicy"),
        ("memory", Available(), "memory=Available: expected a MemoryPolicy, but it has no init"),
        ("secure_aggregation", Fifo(), r"secure_aggregation: expected Masked, got Fifo\(\)"),
        ("memory", {"budget": 0.5}, "memory: expected a kind, one of"),
        ("secure_aggregation", 3, "secure_aggregation: expected a kind, one of .*, got 3"),
        (
            "local",
            LocalTraining,
            r"local: expected an instance, got the class LocalTraining.* "
            r"Pass local=LocalTraining\(\.\.\.\)",
        ),
        ("local", 3, "local=3"),
    ],
)
def test_a_value_that_is_no_component_is_rejected_when_the_recipe_is_constructed(
    stage: str, value: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(fedavg(), **{stage: value})


@dataclass(frozen=True)
class HalfStateful(TaskLoss):
    """Has three methods of two capabilities, but no `start_tick`."""

    def init(self, num_params: int) -> int:
        return 0

    def memo(self, state: int, start: Floats32) -> Mapping[str, Floats32]:
        return {}

    def finish_round(self, state: int, broadcast: Any, summary: Any) -> tuple[int, Any]:
        return state, {}


@dataclass(frozen=True)
class FinishesWithoutState(TaskLoss):
    def finish_round(self, state: int, broadcast: Any, summary: Any) -> tuple[int, Any]:
        return state, {}


@dataclass(frozen=True)
class SurveysWithoutAnswer(Available):
    sends_models = False

    def choose_surveyed(self, roster: Any, rng: np.random.Generator) -> Ints:
        return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class UploadsToNothing(Fifo):
    def upload(self, state: Any) -> tuple[Any, Mapping[str, Floats32]]:
        return state, {}


@pytest.mark.parametrize(
    ("stage", "part", "message"),
    [
        (
            "objective",
            HalfStateful(),
            "objective=HalfStateful implements StatefulObjective only in part: it has init and "
            "memo, but no start_tick",
        ),
        ("objective", FinishesWithoutState(), "it has finish_round, but no init and no start_tick"),
        ("selection", SurveysWithoutAnswer(), "it has choose_surveyed, but no answer_survey"),
        (
            "memory",
            UploadsToNothing(),
            "ServerPart only in part: it has upload, but no init_server",
        ),
    ],
)
def test_a_partially_implemented_capability_is_rejected(
    stage: str, part: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(fedavg(), **{stage: part})


def test_an_attribute_with_the_name_of_a_capability_property_is_no_partial_capability() -> None:
    @dataclass(frozen=True)
    class WithAttribute(Available):
        sends_models: bool = False

    assert replace(fedavg(), selection=WithAttribute()).selection == WithAttribute()
