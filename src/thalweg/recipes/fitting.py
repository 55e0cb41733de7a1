"""Does a recipe make sense in a world? Asked before anything runs."""

from __future__ import annotations

from thalweg.core.talk import Particular
from thalweg.recipes.base import Recipe
from thalweg.streams import World, supplies_of


def check_fits(recipe: Recipe, world: World) -> None:
    """Let every policy that is particular about its world refuse this one, with a reason."""
    particular = [part for part in vars(recipe).values() if isinstance(part, Particular)]
    if particular:
        supplies, num_classes = supplies_of(world), world.book.histograms.shape[1]
        for part in particular:
            part.check_fits(supplies, num_classes)
