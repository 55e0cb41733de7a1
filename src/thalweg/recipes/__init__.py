"""Published algorithms as recipes: ``recipes.fedavg()``, ``recipes.sfedpo(budget=0.3)``, ...

Each function returns a `Recipe`, one component for each stage. `RECIPES` maps names, such as
``"feddrift-eager"``, to these functions; `get_recipe` returns a recipe or a combination by name.
"""

from typing import TYPE_CHECKING

from thalweg.recipes.adaptive import auto as auto
from thalweg.recipes.base import Recipe
from thalweg.recipes.published import *  # noqa: F403
from thalweg.recipes.published import RECIPES, get_recipe

if not TYPE_CHECKING:  # type checkers take the names from the star import
    __all__ = ["RECIPES", "Recipe", "get_recipe", *(make.__name__ for make in RECIPES.values())]
