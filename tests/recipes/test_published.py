from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest

from thalweg.aggregation import Average, Equal, FedAcg, ShiftAware, Step, WarmStart
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.forecast import Exact
from thalweg.local import Continuous, Moon, Proximal, Scaffold
from thalweg.memory import Dds, Fifo, Replace, UniformRatio
from thalweg.recipes import (
    RECIPES,
    dpcs,
    drsr,
    fedacg,
    fedavg,
    fedntd,
    fedogd,
    fedprox,
    flash,
    moon,
    powd,
    recipe_named,
    scaffold,
    scaffold_released,
    sfedpo,
    warmstart,
)
from thalweg.selection import Available, Dpcs, PowerOfChoice


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_called_what_the_table_calls_it(name: str) -> None:
    assert recipe_named(name).name == name
    assert recipe_named(name) == RECIPES[name]()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_which_paper_it_is_from(name: str) -> None:
    assert re.search(r'"[A-Z][^"]{20,}"', RECIPES[name].__doc__ or "", re.DOTALL)


def test_a_name_nobody_has_is_told_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown recipe 'fedag'.*Did you mean 'fedavg'\?"):
        recipe_named("fedag")


def test_sfedpo_is_dds_and_saw_on_an_exact_forecast() -> None:
    recipe = sfedpo()
    assert recipe.memory == Dds(budget=0.5, slope=0.15, offset=0.35)
    assert recipe.weights == ShiftAware(slope=2.0, offset=0.5)
    assert recipe.forecast == Exact(proxy="kl")
    assert recipe.selection == Available()
    assert recipe.server == Step(lr=1.0), "the update already contains the learning rate"


def test_sfedpo_without_its_modules_has_the_same_memory_as_fedavg() -> None:
    bare = sfedpo(dds=False, saw=False)
    assert bare.memory == fedavg().memory == UniformRatio(budget=0.5)
    assert bare.weights == fedavg().weights == Equal()
    assert sfedpo(dds=False).weights == ShiftAware(slope=2.0)
    assert sfedpo(saw=False).memory == Dds(offset=0.35)


def test_the_budget_reaches_the_memory() -> None:
    assert sfedpo(budget=0.2).memory == Dds(budget=0.2, offset=0.35)
    assert sfedpo(budget=0.2, dds=False).memory == UniformRatio(budget=0.2)
    assert fedavg(budget=0.2).memory == UniformRatio(budget=0.2)


def test_fedogd_learns_only_from_what_has_just_arrived() -> None:
    assert fedogd().memory == Replace()


def test_recipes_that_choose_clients_keep_the_newest_samples_and_take_the_plain_mean() -> None:
    for recipe, rule in ((dpcs(), Dpcs(0.3)), (powd(), PowerOfChoice(0.3))):
        assert recipe.selection == rule
        assert recipe.memory == Fifo()
        assert recipe.weights == Equal()
    assert dpcs(participation=0.5).selection == Dpcs(0.5)
    guest = recipe_named("sfedpo+dpcs")
    assert (guest.selection, guest.memory) == (Dpcs(), sfedpo().memory)


def test_a_guest_brings_what_it_is_known_for() -> None:
    both = recipe_named("fedntd+sfedpo")
    assert both.name == "fedntd+sfedpo"
    assert (both.memory, both.weights) == (sfedpo().memory, sfedpo().weights)
    assert both.objective == fedntd().objective
    assert recipe_named("drsr+flash").memory == drsr().memory
    assert recipe_named("drsr+flash").server == flash().server
    assert recipe_named("fedprox+fedogd").memory == fedogd().memory
    assert recipe_named("sfedpo+fedavg").memory == fedavg().memory


def test_hosts_of_the_study_of_clients_that_come_and_go_are_fedavg_but_for_what_they_are_known_for() -> (
    None
):
    plain = fedavg()
    assert scaffold() == replace(plain, name="scaffold", objective=Scaffold("true"))
    released = scaffold_released(server_lr=0.01)
    assert (released.objective, released.server) == (Scaffold("as_released"), Step(lr=0.01))
    assert (fedacg().objective, fedacg().server) == (Proximal(0.01), FedAcg(0.85))
    many = fedacg(momentum=0.5, strength=0.1)
    assert (many.objective, many.server) == (Proximal(0.1), FedAcg(0.5))
    assert moon(temperature=0.5).objective == Moon(1.0, 0.5)
    assert moon() == replace(plain, name="moon", objective=Moon())


def test_continuous_as_a_guest_brings_its_objective_alone() -> None:
    both = recipe_named("fedacg+continuous")
    assert both == replace(fedacg(), name="fedacg+continuous", objective=Continuous(1.0))
    assert recipe_named("sfedpo+continuous").memory == sfedpo().memory


def test_two_guests_cannot_bring_the_same_stage() -> None:
    with pytest.raises(ConfigError, match="both sfedpo and ode bring their own memory"):
        recipe_named("fedavg+sfedpo+ode")


def test_an_unknown_guest_is_named() -> None:
    with pytest.raises(UnknownName, match=r"'sfedpoo'.*Did you mean 'sfedpo'"):
        recipe_named("fedprox+sfedpoo")


def test_an_opening_is_all_that_a_warm_start_brings() -> None:
    both = recipe_named("fedprox+warmstart")
    assert both == replace(fedprox(), name="fedprox+warmstart", opening=WarmStart(scale=10.0))
    average = recipe_named("sfedpo+average-start")
    assert average == replace(sfedpo(), name="sfedpo+average-start", opening=Average())
    assert warmstart(scale=800.0).opening == WarmStart(scale=800.0)


SEVERAL_MODELS, OPENS = {"feddrift"}, {"warmstart", "average-start"}


def cannot_be(*names: str) -> bool:
    """A bank of several models goes on with those it has, whatever an opening says."""
    return bool(SEVERAL_MODELS & {*names}) and bool(OPENS & {*names})


@pytest.mark.parametrize("name", ["feddrift+warmstart", "average-start+feddrift"])
def test_an_opening_beside_a_bank_of_several_models_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"FedDrift has several .* use opening=previous"):
        recipe_named(name)


@pytest.mark.parametrize("host", RECIPES)
def test_any_host_takes_any_guest_and_gets_what_it_is_known_for(host: str) -> None:
    for guest in (guest for guest in RECIPES if not cannot_be(host, guest)):
        both, alone, plain = recipe_named(f"{host}+{guest}"), RECIPES[guest](), fedavg()
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
        recipe_named(name)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("host", RECIPES)
def test_any_two_guests_either_bring_different_stages_or_are_refused_by_name(host: str) -> None:
    for one, other in combinations(RECIPES, 2):
        refusal = refusal_of(f"{host}+{one}+{other}")
        if cannot_be(host, one, other):
            assert refusal is not None
        elif refusal is None:
            both, turned = (
                recipe_named(f"{host}+{one}+{other}"),
                recipe_named(f"{host}+{other}+{one}"),
            )
            assert replace(turned, name=both.name) == both
        else:
            assert re.search(rf"both {one} and {other} bring their own \w+; a stage has", refusal)
