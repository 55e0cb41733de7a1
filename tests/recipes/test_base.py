from __future__ import annotations

import math
import tomllib
from dataclasses import replace

import pytest
import tomli_w

from thalweg.aggregation import Equal, ShiftAware
from thalweg.core.config import from_dict, to_dict, with_overrides
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.local import Sgd
from thalweg.memory import Dds, Fifo, Reservoir
from thalweg.recipes import RECIPES, Recipe, sfedpo
from thalweg.sessions import WarmStart


def test_a_recipe_needs_a_name_and_a_memory_and_has_the_rest() -> None:
    plain = Recipe("mine", Fifo())
    assert plain.weights == Equal()
    assert plain.local is None


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_goes_through_a_toml_file_and_back(name: str) -> None:
    recipe = RECIPES[name]()
    text = tomli_w.dumps(to_dict(recipe))
    assert from_dict(Recipe, tomllib.loads(text)) == recipe


def test_a_way_of_training_goes_along() -> None:
    recipe = replace(sfedpo(), local=Sgd(lr=0.5, batch_size=8, steps=2))
    assert from_dict(Recipe, to_dict(recipe)) == recipe


def test_a_variant_is_a_replacement_and_can_be_typed() -> None:
    by_hand = replace(sfedpo(), memory=Dds(budget=0.3, offset=0.35), weights=Equal())
    typed = with_overrides(sfedpo(), ["memory.budget=0.3", "weights=equal"])
    assert typed == by_hand
    assert with_overrides(sfedpo(), ["memory=reservoir"]).memory == Reservoir()
    assert with_overrides(sfedpo(), ["weights.slope=1.5"]).weights == ShiftAware(slope=1.5)


def test_a_slip_of_the_pen_is_told_what_it_probably_meant() -> None:
    for assignment, meant in (
        ("memory=reservor", "reservoir"),
        ("memory.bugdet=0.3", "budget"),
        ("wieghts=equal", "weights"),
        ("forecast=bayes", "bayesian"),
    ):
        with pytest.raises(UnknownName, match=rf"Did you mean '{meant}'\?"):
            with_overrides(sfedpo(), [assignment])


def test_an_impossible_value_in_a_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="budget must lie in"):
        from_dict(Recipe, {"name": "mine", "memory": {"kind": "dds", "budget": 2.0}})


def test_an_infinite_scale_goes_through_a_toml_file_and_back() -> None:
    recipe = replace(RECIPES["warmstart"](), session_start=WarmStart(scale=math.inf, history=5))
    assert from_dict(Recipe, tomllib.loads(tomli_w.dumps(to_dict(recipe)))) == recipe
