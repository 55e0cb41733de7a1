"""Published algorithms: one choice per stage, a citation, and how we differ."""

from thalweg.recipes.base import Recipe
from thalweg.recipes.published import RECIPES, fedavg, fedogd, recipe_named, sfedpo

__all__ = ["RECIPES", "Recipe", "fedavg", "fedogd", "recipe_named", "sfedpo"]
