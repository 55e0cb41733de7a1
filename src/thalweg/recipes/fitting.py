"""Does a recipe make sense in a world? Asked before anything runs."""

from __future__ import annotations

from thalweg.aggregation import OneModel
from thalweg.core.errors import require
from thalweg.core.talk import Particular
from thalweg.forecast import Opens
from thalweg.recipes.base import Recipe
from thalweg.streams import World, supplies_of


def check_fits(recipe: Recipe, world: World) -> None:
    """Let every policy that is particular about its world refuse this one, with a reason."""
    _check_alarm(recipe)
    particular = [part for part in vars(recipe).values() if isinstance(part, Particular)]
    if particular:
        supplies, num_classes = supplies_of(world), world.book.histograms.shape[1]
        for part in particular:
            part.check_fits(supplies, num_classes)


def _check_alarm(recipe: Recipe) -> None:
    """An alarm about which nothing can be done would be silent."""
    require(
        not recipe.effect.opens_state or isinstance(recipe.forecast, Opens),
        f"alarm.action opens a state in the forecast, but {type(recipe.forecast).__name__} knows all states from "
        "the beginning; use forecast=growing.",
    )
    require(
        not recipe.effect.reclusters or not isinstance(recipe.bank, OneModel),
        "alarm.action is for a bank of several models, but there is one model for everybody; use another bank, "
        "such as bank=feddrift.",
    )
