from dataclasses import replace

import pytest

from thalweg.local import Moon, Settles
from thalweg.recipes import RECIPES, recipe_named
from thalweg.recipes.abilities import Abilities

ATTENTIVE = {"fedcurv", "fedewc", "flwf-2t", "is", "ode"}
ATTENTIVE |= {"scaffold", "scaffold-released", "moon", "continuous"}


def abilities(recipe):
    found = Abilities()
    found.recipe = recipe
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_only_these_recipes_look_at_their_model_between_ticks(name):
    assert abilities(recipe_named(name)).is_attentive == (name in ATTENTIVE)


def test_early_stopping_looks_too():
    assert abilities(replace(recipe_named("flash"), stopping=Settles())).is_attentive


def test_some_objectives_want_to_know_what_came_of_a_round_and_forget_with_the_session():
    for name, forgets in (("scaffold", True), ("moon", False)):
        found = abilities(recipe_named(name))
        assert found.concluding is found.recipe.objective
        assert found.forgets == forgets
    assert abilities(replace(recipe_named("moon"), objective=Moon(per_session=True))).forgets
    for name in ("fedavg", "fedewc", "continuous"):
        found = abilities(recipe_named(name))
        assert (found.concluding, found.forgets) == (None, False)


def test_a_policy_is_asked_for_what_it_has():
    sfedpo, dpcs = abilities(recipe_named("sfedpo")), abilities(recipe_named("dpcs"))
    assert sfedpo.reporting is sfedpo.recipe.weights
    assert sfedpo.foreseeing is sfedpo.recipe.memory
    assert (sfedpo.tallying, sfedpo.looking, sfedpo.recognising) == (None, None, None)
    assert dpcs.tallying is dpcs.recipe.selection
    assert dpcs.reporting is None
