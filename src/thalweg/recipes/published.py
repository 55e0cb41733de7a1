"""The published algorithms: one function each, returning a recipe."""

from __future__ import annotations

from collections.abc import Callable

from thalweg.aggregation import Equal, ShiftAware
from thalweg.core.errors import UnknownName
from thalweg.memory import Dds, Replace, UniformRatio
from thalweg.recipes.base import Recipe


def sfedpo(*, budget: float = 0.5, dds: bool = True, saw: bool = True) -> Recipe:
    """SFedPO: a prediction oracle guides what clients store (DDS) and how much they count (SAW).

    "SFedPO: Streaming federated learning with a prediction oracle under temporal shifts". Of its
    four tunables the paper gives only ranges; where we stand in them: docs/recipes/sfedpo.md.
    """
    return Recipe(
        name="sfedpo",
        memory=Dds(budget=budget, offset=0.35) if dds else UniformRatio(budget=budget),
        weights=ShiftAware(slope=2.0) if saw else Equal(),
    )


def fedavg(*, budget: float = 0.5) -> Recipe:
    """FedAvg on a memory of which a fixed share is renewed at every tick.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017.
    """
    return Recipe(name="fedavg", memory=UniformRatio(budget=budget))


def fedogd() -> Recipe:
    """FedOGD: online gradient descent on every client, only on what has just arrived.

    Kwon, Park, Hong, "Tighter regret analysis and optimization of online federated learning", 2023.
    """
    return Recipe(name="fedogd", memory=Replace())


RECIPES: dict[str, Callable[[], Recipe]] = {
    "sfedpo": sfedpo,
    "fedavg": fedavg,
    "fedogd": fedogd,
}


def recipe_named(name: str) -> Recipe:
    """A published recipe with its defaults."""
    if name not in RECIPES:
        raise UnknownName("recipe", name, RECIPES)
    return RECIPES[name]()
