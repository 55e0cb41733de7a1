from dataclasses import replace

import pytest

from federation.scripted_stream import ScriptedStream
from thalweg.federation import Capabilities
from thalweg.local import GainThreshold, Moon
from thalweg.recipes import RECIPES, get_recipe

ATTENTIVE = {"fedcurv", "fedewc", "flwf-2t", "is", "ode"}
ATTENTIVE |= {"scaffold", "scaffold-released", "moon", "continuous"}


def abilities(recipe):
    found = Capabilities()
    found.recipe, found.stream = recipe, ScriptedStream()
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_only_these_recipes_evaluate_the_model_between_ticks(name):
    assert abilities(get_recipe(name)).needs_probe == (name in ATTENTIVE)


def test_early_stopping_evaluates_the_model_between_ticks():
    assert abilities(replace(get_recipe("flash"), stopping=GainThreshold())).needs_probe


def test_objectives_with_finish_round_are_found_and_reset_per_session():
    for name, is_reset in (("scaffold", True), ("moon", False)):
        found = abilities(get_recipe(name))
        assert found.objective_with_finish is found.recipe.objective
        assert found.is_reset_per_session == is_reset
    assert abilities(
        replace(get_recipe("moon"), objective=Moon(per_session=True))
    ).is_reset_per_session
    for name in ("fedavg", "fedewc", "continuous"):
        found = abilities(get_recipe(name))
        assert (found.objective_with_finish, found.is_reset_per_session) == (None, False)


def test_capabilities_of_the_policies_are_found():
    sfedpo, dpcs = abilities(get_recipe("sfedpo")), abilities(get_recipe("dpcs"))
    assert sfedpo.weights_with_reports is sfedpo.recipe.weights
    assert sfedpo.memory_with_renewal is sfedpo.recipe.memory
    assert (
        sfedpo.selection_with_counts,
        sfedpo.memory_with_probe,
        sfedpo.forecast_with_recognition,
    ) == (None, None, None)
    assert dpcs.selection_with_counts is dpcs.recipe.selection
    assert dpcs.weights_with_reports is None
