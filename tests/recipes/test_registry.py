from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest

from contracts.slow_cases import mark_slow_except
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.local import Continuous
from thalweg.recipes import (
    RECIPES,
    drsr,
    fedacg,
    fedavg,
    fedntd,
    fedogd,
    fedprox,
    flash,
    get_recipe,
    sfedpo,
    warmstart,
)
from thalweg.sessions import Average, WarmStart


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_called_what_the_table_calls_it(name: str) -> None:
    assert get_recipe(name).name == name
    assert get_recipe(name) == RECIPES[name]()


def test_a_name_nobody_has_is_told_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown recipe 'fedag'.*Did you mean 'fedavg'\?"):
        get_recipe("fedag")


def test_a_guest_brings_what_it_is_known_for() -> None:
    both = get_recipe("fedntd+sfedpo")
    assert both.name == "fedntd+sfedpo"
    assert (both.memory, both.weights) == (sfedpo().memory, sfedpo().weights)
    assert both.objective == fedntd().objective
    assert get_recipe("drsr+flash").memory == drsr().memory
    assert get_recipe("drsr+flash").server == flash().server
    assert get_recipe("fedprox+fedogd").memory == fedogd().memory
    assert get_recipe("sfedpo+fedavg").memory == fedavg().memory


def test_continuous_as_a_guest_brings_its_objective_alone() -> None:
    both = get_recipe("fedacg+continuous")
    assert both == replace(fedacg(), name="fedacg+continuous", objective=Continuous(1.0))
    assert get_recipe("sfedpo+continuous").memory == sfedpo().memory


def test_two_guests_cannot_bring_the_same_stage() -> None:
    with pytest.raises(ConfigError, match="both sfedpo and ode bring their own memory"):
        get_recipe("fedavg+sfedpo+ode")


def test_an_unknown_guest_is_named() -> None:
    with pytest.raises(UnknownName, match=r"'sfedpoo'.*Did you mean 'sfedpo'"):
        get_recipe("fedprox+sfedpoo")


def test_an_opening_is_all_that_a_warm_start_brings() -> None:
    both = get_recipe("fedprox+warmstart")
    assert both == replace(fedprox(), name="fedprox+warmstart", session_start=WarmStart(scale=10.0))
    average = get_recipe("sfedpo+average-start")
    assert average == replace(sfedpo(), name="sfedpo+average-start", session_start=Average())
    assert warmstart(scale=800.0).session_start == WarmStart(scale=800.0)


SEVERAL_MODELS = {"feddrift", "feddrift-eager", "fedrc", "feddaa", "oracle"}
OPENS = {"warmstart", "average-start"}


def cannot_be(*names: str) -> bool:
    """A bank of several models goes on with those it has, whatever an opening says."""
    return bool(SEVERAL_MODELS & {*names}) and bool(OPENS & {*names})


@pytest.mark.parametrize("name", ["feddrift+warmstart", "average-start+feddrift"])
def test_an_opening_beside_a_bank_of_several_models_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"FedDrift has several .* use session_start=previous"):
        get_recipe(name)


@pytest.mark.parametrize("host", RECIPES)
def test_any_host_takes_any_guest_and_gets_what_it_is_known_for(host: str) -> None:
    for guest in (guest for guest in RECIPES if not cannot_be(host, guest)):
        both, alone, plain = get_recipe(f"{host}+{guest}"), RECIPES[guest](), fedavg()
        assert both.name == f"{host}+{guest}"
        for stage in vars(both).keys() - {"name"}:
            theirs = getattr(alone, stage)
            if stage != "memory" and theirs != getattr(plain, stage):
                assert getattr(both, stage) == theirs, "the guest is known for it"
            else:
                assert getattr(both, stage) in (getattr(RECIPES[host](), stage), theirs)


def refusal_of(name: str) -> str | None:
    """Why a combination cannot be had; none: it can."""
    try:
        get_recipe(name)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "host", mark_slow_except(RECIPES, "fedavg", "sfedpo", "feddaa", "warmstart")
)
def test_any_two_guests_either_bring_different_stages_or_are_refused_by_name(host: str) -> None:
    for one, other in combinations(RECIPES, 2):
        refusal = refusal_of(f"{host}+{one}+{other}")
        if cannot_be(host, one, other):
            assert refusal is not None
        elif refusal is None:
            both, turned = (
                get_recipe(f"{host}+{one}+{other}"),
                get_recipe(f"{host}+{other}+{one}"),
            )
            assert replace(turned, name=both.name) == both
        else:
            assert re.search(rf"both {one} and {other} bring their own \w+; a stage has", refusal)
