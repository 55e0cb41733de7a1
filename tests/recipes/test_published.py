"""The registered recipes and their combinations."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest

from thalweg import recipes
from thalweg.aggregation import ByWeight, Equal, FedAcg, ShiftAware, Step
from thalweg.bank import FedDrift, FedRc
from thalweg.core.decay import PolynomialDecay
from thalweg.core.errors import ConfigError, UnknownName
from thalweg.forecast import Auto
from thalweg.local import Continuous, Moon, Proximal, Scaffold
from thalweg.memory import Dds, Fifo, Replace, UniformRatio
from thalweg.recipes import (
    RECIPES,
    dpcs,
    drsr,
    fedacg,
    fedavg,
    fedavg_retrain,
    feddaa,
    feddrift,
    feddrift_eager,
    fedntd,
    fedogd,
    fedprox,
    fedrc,
    flash,
    get_recipe,
    moon,
    oracle,
    powd,
    scaffold,
    scaffold_released,
    sfedpo,
    static,
    stream_fresh,
    warmstart,
)
from thalweg.sample_weights import Early, OldAndNew
from thalweg.selection import Available, Dpcs, PowerOfChoice, Uniform
from thalweg.sessions import Average, WarmStart


@pytest.mark.parametrize("name", RECIPES)
def test_every_registered_recipe_has_its_name_and_can_be_imported(name: str) -> None:
    make = RECIPES[name]
    assert make().name == name
    assert get_recipe(name) == make()
    assert getattr(recipes, make.__name__) is make
    assert make.__name__ in recipes.__all__
    assert make.__name__.replace("_", "-") == name or name == "is"


@pytest.mark.parametrize("name", RECIPES)
def test_the_docstring_of_a_recipe_has_a_summary_sentence_and_a_citation(name: str) -> None:
    summary, _, rest = (RECIPES[name].__doc__ or "").partition("\n\n")
    assert summary.endswith(".")
    assert "\n" not in summary
    assert re.search(r'"[A-Z][^"]{20,}"', rest, re.DOTALL)


def test_sfedpo_has_dds_and_shift_aware_weights() -> None:
    recipe = sfedpo()
    assert recipe.memory == Dds(budget=0.5, slope=0.15, offset=0.35)
    assert recipe.weights == ShiftAware(slope=2.0, offset=0.5)
    assert recipe.forecast == Auto(proxy="kl")
    assert recipe.selection == Available()
    assert recipe.server == Step(lr=1.0), "the update already contains the learning rate"


def test_sfedpo_without_its_modules_is_fedavg() -> None:
    bare = sfedpo(dds=False, saw=False)
    assert replace(bare, name="fedavg") == fedavg()
    assert bare.memory == UniformRatio(budget=0.5)
    assert bare.weights == Equal()
    assert sfedpo(dds=False).weights == ShiftAware(slope=2.0)
    assert sfedpo(saw=False).memory == Dds(offset=0.35)


def test_the_budget_is_that_of_the_memory() -> None:
    assert sfedpo(budget=0.2).memory == Dds(budget=0.2, offset=0.35)
    assert sfedpo(budget=0.2, dds=False).memory == UniformRatio(budget=0.2)
    assert fedavg(budget=0.2).memory == UniformRatio(budget=0.2)


def test_static_is_fedavg_with_training_in_the_first_part_only() -> None:
    assert static() == replace(fedavg(), name="static", sample_weights=Early(share=0.25))
    assert static(share=0.1).sample_weights == Early(share=0.1)


def test_fedogd_keeps_only_the_newest_samples() -> None:
    assert fedogd().memory == Replace()


def test_stream_fresh_weights_fresh_samples_only() -> None:
    assert stream_fresh().sample_weights == OldAndNew("fresh")


def test_recipes_that_choose_clients_keep_the_newest_samples_and_use_equal_weights() -> None:
    for recipe, rule in ((dpcs(), Dpcs(0.3)), (powd(), PowerOfChoice(0.3))):
        assert recipe.selection == rule
        assert recipe.memory == Fifo()
        assert recipe.weights == Equal()
    assert dpcs(participation=0.5).selection == Dpcs(0.5)


def test_variants_of_fedavg_change_the_objective_or_the_server_rule_only() -> None:
    plain = fedavg()
    assert scaffold() == replace(plain, name="scaffold", objective=Scaffold("true"))
    released = scaffold_released(server_lr=0.01)
    decay = PolynomialDecay(power=0.9, floor=0.9)
    expected = (Scaffold("as_released"), Step(lr=0.01, decay=decay))
    assert (released.objective, released.server) == expected
    assert (fedacg().objective, fedacg().server) == (Proximal(0.01), FedAcg(0.85))
    changed = fedacg(momentum=0.5, strength=0.1)
    assert (changed.objective, changed.server) == (Proximal(0.1), FedAcg(0.5))
    assert moon(temperature=0.5).objective == Moon(1.0, 0.5)
    assert moon() == replace(plain, name="moon", objective=Moon())


def test_recipes_with_several_models_choose_half_of_the_clients_and_weight_by_samples() -> None:
    for recipe in (fedrc(), feddaa(), oracle()):
        assert recipe.selection == Uniform(0.5)
        assert recipe.weights == ByWeight(basis="learnt")
    assert fedrc().memory == fedavg_retrain().memory == Replace(), "only the newest data"
    assert feddaa().memory == oracle().memory == Fifo(), "this time step and the previous one"
    assert feddaa(aggregate_by_responsibility=True).weights == ByWeight(basis="explained")
    assert fedrc(num_models=4).bank == FedRc(4)
    assert feddaa(participation=0.2).selection == Uniform(0.2)
    assert feddrift_eager() == replace(feddrift(), name="feddrift-eager", bank=FedDrift(eager=True))


def test_an_unknown_recipe_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match=r"unknown recipe 'fedag'.*Did you mean .*'fedavg'"):
        get_recipe("fedag")
    with pytest.raises(UnknownName, match=r"'sfedpoo'.*Did you mean 'sfedpo'"):
        get_recipe("fedprox+sfedpoo")


def test_a_guest_adds_the_stages_in_which_it_differs_from_fedavg() -> None:
    both = get_recipe("fedntd+sfedpo")
    assert both.name == "fedntd+sfedpo"
    assert (both.memory, both.weights) == (sfedpo().memory, sfedpo().weights)
    assert both.objective == fedntd().objective
    assert get_recipe("drsr+flash").memory == drsr().memory
    assert get_recipe("drsr+flash").server == flash().server
    assert get_recipe("fedprox+fedogd").memory == fedogd().memory
    assert get_recipe("sfedpo+fedavg").memory == fedavg().memory
    assert get_recipe("fedprox+static").sample_weights == Early()
    with_dpcs = get_recipe("sfedpo+dpcs")
    assert (with_dpcs.selection, with_dpcs.memory) == (Dpcs(), sfedpo().memory)


def test_a_guest_with_one_stage_of_its_own_changes_only_that_stage() -> None:
    both = get_recipe("fedacg+continuous")
    assert both == replace(fedacg(), name="fedacg+continuous", objective=Continuous(1.0))
    both = get_recipe("fedprox+warmstart")
    assert both == replace(fedprox(), name="fedprox+warmstart", session_start=WarmStart(scale=10.0))
    average = get_recipe("sfedpo+average-start")
    assert average == replace(sfedpo(), name="sfedpo+average-start", session_start=Average())
    assert warmstart(scale=800.0).session_start == WarmStart(scale=800.0)


def test_two_guests_that_change_the_same_stage_are_rejected() -> None:
    with pytest.raises(ConfigError, match="both sfedpo and ode change the stage memory"):
        get_recipe("fedavg+sfedpo+ode")


SEVERAL_MODELS = {
    "feddrift",
    "feddrift-eager",
    "fedrc",
    "feddaa",
    "oracle",
    "local-only",
    "ifca",
} | {"auto"}
OTHER_SINGLE_MODELS = {"fine-tuned", "centralised"}
SESSION_STARTS = {"warmstart", "average-start"}


def is_impossible(*names: str) -> bool:
    """Session starts other than the default need a single model.

    A guest with another bank replaces that of the host.
    """
    if OTHER_SINGLE_MODELS & {*names[1:]} and not SEVERAL_MODELS & {*names[1:]}:
        return False
    return bool(SEVERAL_MODELS & {*names}) and bool(SESSION_STARTS & {*names})


@pytest.mark.parametrize("name", ["feddrift+warmstart", "average-start+feddrift"])
def test_a_session_start_with_a_bank_of_several_models_is_rejected(name: str) -> None:
    with pytest.raises(
        ConfigError, match=r"bank=FedDrift: it needs a single model. Use session_start=previous"
    ):
        get_recipe(name)


@pytest.mark.parametrize("host", RECIPES)
def test_every_host_and_guest_can_be_combined(host: str) -> None:
    plain, first = fedavg(), RECIPES[host]()
    for guest in (guest for guest in RECIPES if not is_impossible(host, guest)):
        both, alone = get_recipe(f"{host}+{guest}"), RECIPES[guest]()
        assert both.name == f"{host}+{guest}"
        for stage in vars(both).keys() - {"name"}:
            of_guest = getattr(alone, stage)
            if stage != "memory" and of_guest != getattr(plain, stage):
                assert getattr(both, stage) == of_guest
            else:
                assert getattr(both, stage) in (getattr(first, stage), of_guest)


def get_error(name: str) -> str | None:
    """Return the error message of a combination; None if it is valid."""
    try:
        get_recipe(name)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize("host", ["fedavg", pytest.param("feddaa", marks=pytest.mark.slow)])
def test_the_order_of_two_guests_does_not_matter_unless_they_change_the_same_stage(
    host: str,
) -> None:
    for one, other in combinations(RECIPES, 2):
        error = get_error(f"{host}+{one}+{other}")
        if is_impossible(host, one, other):
            assert error is not None
        elif error is None:
            both = get_recipe(f"{host}+{one}+{other}")
            assert replace(get_recipe(f"{host}+{other}+{one}"), name=both.name) == both
        else:
            assert re.search(rf"both {one} and {other} change the stage \w+, which can", error)
