from __future__ import annotations

import math
from dataclasses import replace

import pytest

from thalweg.aggregation import ByWeight, LabelBalanced
from thalweg.bank import TwoMixtures
from thalweg.local import Gaussian
from thalweg.recipes import RECIPES, Recipe, fedavg, get_recipe
from thalweg.recipes.disclosure import (
    compute_least_noise,
    compute_response_cost,
    compute_survey_cost,
    list_exact_parts,
)
from thalweg.selection import Dpcs, LabelPrivacy, PowerOfChoice

HIDDEN = Gaussian(noise=4.0, losses="omit", counts="omit", predictions="omit")
PROTECTED = replace(fedavg(), privacy=HIDDEN)


def test_parts_without_noise_are_listed() -> None:
    noisy = replace(fedavg(), privacy=Gaussian())
    assert list_exact_parts(noisy) == ("losses", "counts", "predictions")
    assert list_exact_parts(PROTECTED) == ()
    assert list_exact_parts(replace(PROTECTED, weights=ByWeight())) == ("reports of the weights",)
    survey = LabelBalanced(source="survey")
    assert list_exact_parts(replace(PROTECTED, weights=survey)) == ()
    for selection in (Dpcs(), PowerOfChoice()):
        parts = list_exact_parts(replace(PROTECTED, selection=selection))
        assert parts == ("survey responses of the selection",)
    private = Dpcs(privacy=LabelPrivacy(epsilon=0.5))
    assert list_exact_parts(replace(PROTECTED, selection=private)) == ()


def test_surveys_of_a_bank_are_exact() -> None:
    """Prototypes, their standard errors and the losses of `two-mixtures` have no noise."""
    recipe = replace(PROTECTED, bank=TwoMixtures())
    assert list_exact_parts(recipe) == ("uploads of the bank", "survey responses of the bank")
    assert compute_survey_cost(recipe, "bank").epsilon(1e-5) == math.inf
    assert compute_least_noise(recipe) == 0


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_without_privacy_disclose_their_updates(name: str) -> None:
    recipe = get_recipe(name)
    if isinstance(recipe, Recipe):
        assert list_exact_parts(recipe)[0] == "updates"
        assert compute_least_noise(recipe) == 0


def test_costs() -> None:
    assert compute_response_cost(PROTECTED).mu_squared == 0.25
    assert compute_response_cost(fedavg()).epsilon(1e-5) == math.inf
    assert compute_survey_cost(fedavg(), "selection").epsilon(1e-5) == math.inf
    private = replace(PROTECTED, selection=Dpcs(privacy=LabelPrivacy(epsilon=0.5)))
    assert compute_survey_cost(private, "selection").laplace == {0.5: 1}


def test_least_noise_is_in_units_of_half_the_largest_change() -> None:
    assert compute_least_noise(PROTECTED) == 4.0
    for epsilon, least in ((0.25, 4.0), (1.0, 2.0)):  # 2 / epsilon is 8 and 2
        selection = Dpcs(privacy=LabelPrivacy(epsilon=epsilon))
        assert compute_least_noise(replace(PROTECTED, selection=selection)) == least
