"""Recipes by name, and what a plus sign between two names means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from thalweg.core.errors import ConfigError, UnknownName
from thalweg.memory import Fifo
from thalweg.recipes.base import Recipe
from thalweg.recipes.published import (
    adaptive_fedavg,
    average_start,
    continuous,
    dpcs,
    drsr,
    fedacg,
    fedavg,
    fedavg_retrain,
    fedcurv,
    feddaa,
    feddrift,
    feddrift_eager,
    fedewc,
    fedexp,
    fedntd,
    fedogd,
    fedomd,
    fedprox,
    fedrc,
    flash,
    flwf_2t,
    importance_sampling,
    moon,
    ode,
    oracle,
    powd,
    scaffold,
    scaffold_released,
    sfedpo,
    srsr,
    static,
    stream_fresh,
    stream_historical,
    stream_ours,
    stream_uniform,
    warmstart,
)

RECIPES: dict[str, Callable[[], Recipe]] = {
    "sfedpo": sfedpo,
    "fedavg": fedavg,
    "static": static,
    "fedprox": fedprox,
    "fedcurv": fedcurv,
    "fedntd": fedntd,
    "fedexp": fedexp,
    "scaffold": scaffold,
    "scaffold-released": scaffold_released,
    "fedacg": fedacg,
    "moon": moon,
    "continuous": continuous,
    "fedogd": fedogd,
    "fedomd": fedomd,
    "adaptive-fedavg": adaptive_fedavg,
    "feddrift": feddrift,
    "flash": flash,
    "fedewc": fedewc,
    "flwf-2t": flwf_2t,
    "fedavg-retrain": fedavg_retrain,
    "feddrift-eager": feddrift_eager,
    "fedrc": fedrc,
    "feddaa": feddaa,
    "oracle": oracle,
    "is": importance_sampling,
    "ode": ode,
    "drsr": drsr,
    "srsr": srsr,
    "stream-ours": stream_ours,
    "stream-uniform": stream_uniform,
    "stream-historical": stream_historical,
    "stream-fresh": stream_fresh,
    "dpcs": dpcs,
    "powd": powd,
    "warmstart": warmstart,
    "average-start": average_start,
}


def get_recipe(name: str) -> Recipe:
    """A published recipe with its defaults, or ``host+guest``: what the guest is known for, added.

    Every stage that the guest sets otherwise than FedAvg on a plain memory replaces the host's:
    ``fedprox+sfedpo`` is FedProx's loss with SFedPO's memory and weights, ``drsr+flash`` DRSR's memory
    with Flash's server rule. Guests may be several, if they do not bring the same stage.

    >>> combined = get_recipe("fedprox+sfedpo")
    >>> type(combined.memory).__name__, type(combined.objective).__name__, type(combined.weights).__name__
    ('Dds', 'Proximal', 'ShiftAware')
    """
    names = name.split("+")
    for each in names:
        if each not in RECIPES:
            raise UnknownName("recipe", each, RECIPES)
    recipe = RECIPES[names[0]]()
    chosen_by: dict[str, str] = {}
    for each in names[1:]:
        changes = _find_changes(RECIPES[each]())
        for stage in changes:
            if stage in chosen_by:
                raise ConfigError(
                    f"{name}: both {chosen_by[stage]} and {each} bring their own {stage}; "
                    "a stage has one choice."
                )
            chosen_by[stage] = each
        recipe = replace(recipe, **changes)
    return replace(recipe, name=name)


def _find_changes(recipe: Recipe) -> dict[str, Any]:
    """The stages in which a recipe differs from plain FedAvg.

    A memory that is plain itself, renewed by half, replaced whole or of the newest samples, counts only if
    nothing else does.
    """
    plain, plain_memories = fedavg(), (fedavg().memory, fedogd().memory, Fifo())
    changes = {
        stage: value
        for stage, value in vars(recipe).items()
        if stage not in ("name", "memory") and value != getattr(plain, stage)
    }
    if not changes or recipe.memory not in plain_memories:
        changes["memory"] = recipe.memory
    return changes
