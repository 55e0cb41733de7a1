from __future__ import annotations

import re
from dataclasses import replace

import pytest

from thalweg.aggregation import ByWeight, Equal, FedAcg, ShiftAware, Step
from thalweg.bank import FedDrift, FedRc
from thalweg.forecast import Exact
from thalweg.local import Moon, Proximal, Scaffold
from thalweg.memory import Dds, Fifo, Replace, UniformRatio
from thalweg.recipes import (
    RECIPES,
    dpcs,
    fedacg,
    fedavg,
    fedavg_retrain,
    feddaa,
    feddrift,
    feddrift_eager,
    fedogd,
    fedrc,
    get_recipe,
    moon,
    oracle,
    powd,
    scaffold,
    scaffold_released,
    sfedpo,
    static,
)
from thalweg.sample_weights import Early
from thalweg.selection import Available, Dpcs, PowerOfChoice, Uniform


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_says_which_paper_it_is_from(name: str) -> None:
    assert re.search(r'"[A-Z][^"]{20,}"', RECIPES[name].__doc__ or "", re.DOTALL)


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


def test_a_static_model_is_fedavg_until_it_stops() -> None:
    assert static() == replace(fedavg(), name="static", sample_weights=Early(share=0.25))
    assert static(share=0.1).sample_weights == Early(share=0.1)
    assert get_recipe("fedprox+static").sample_weights == Early()


def test_fedogd_learns_only_from_what_has_just_arrived() -> None:
    assert fedogd().memory == Replace()


def test_recipes_that_choose_clients_keep_the_newest_samples_and_take_the_plain_mean() -> None:
    for recipe, rule in ((dpcs(), Dpcs(0.3)), (powd(), PowerOfChoice(0.3))):
        assert recipe.selection == rule
        assert recipe.memory == Fifo()
        assert recipe.weights == Equal()
    assert dpcs(participation=0.5).selection == Dpcs(0.5)
    guest = get_recipe("sfedpo+dpcs")
    assert (guest.selection, guest.memory) == (Dpcs(), sfedpo().memory)


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


def test_recipes_for_drift_choose_half_of_the_clients_and_weigh_what_they_learn_from() -> None:
    for recipe in (fedrc(), feddaa(), oracle()):
        assert recipe.selection == Uniform(0.5)
        assert recipe.weights == ByWeight(basis="learnt")
    assert fedrc().memory == fedavg_retrain().memory == Replace(), "only the newest data"
    assert feddaa().memory == oracle().memory == Fifo(), "the last step and this one"
    assert feddaa(aggregate_by_responsibility=True).weights == ByWeight(basis="explained")
    assert fedrc(num_models=4).bank == FedRc(4)
    assert feddaa(participation=0.2).selection == Uniform(0.2)
    assert feddrift_eager() == replace(feddrift(), name="feddrift-eager", bank=FedDrift(eager=True))
