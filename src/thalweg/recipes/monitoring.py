"""What the policies of a recipe monitor during a run, in words."""

from __future__ import annotations

from dataclasses import fields

from thalweg.core.config import kind_of
from thalweg.drift import ACTIONS, ALARMS
from thalweg.recipes.base import Recipe


def list_monitored(recipe: Recipe) -> list[str]:
    """Return a phrase for everything that a recipe monitors in order to adapt.

    A policy declares it with the attribute ``monitors``.

    >>> from thalweg.recipes import fedavg
    >>> list_monitored(fedavg())
    []
    """
    found = []
    if recipe.alarm is not None:
        detector = kind_of(recipe.alarm, ALARMS)
        action = kind_of(recipe.alarm.action, ACTIONS)
        found.append(f"the {recipe.alarm.watch} of each client (alarm {detector}, action {action})")
    for stage in fields(recipe):
        if text := getattr(getattr(recipe, stage.name), "monitors", ""):
            found.append(str(text))
    return found
