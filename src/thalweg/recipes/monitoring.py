"""What the policies of a recipe monitor during a run, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields

from thalweg.core.config import kind_of
from thalweg.drift import ALARMS
from thalweg.drift.base import Effect
from thalweg.recipes.base import Recipe

WATCHED = {
    "error": "the error of each client on arriving samples",
    "loss": "the training loss of each client",
    "counts": "the wrong predictions of each client on arriving samples",
}
RAISED_BY = {
    "error": "the error on arriving samples has changed",
    "loss": "the training loss has changed",
    "counts": "more arriving samples were predicted wrongly than expected",
}


def list_monitored(recipe: Recipe, inert: Collection[str] = ()) -> list[str]:
    """Return a phrase for everything that a recipe monitors in order to adapt.

    A policy declares it with the attribute ``monitors``. Stages that are `inert` in a run
    (`compatibility.find_inert`) are left out.

    >>> from thalweg.recipes import fedavg
    >>> list_monitored(fedavg())
    []
    """
    found = []
    if recipe.alarm is not None and "alarm" not in inert:
        detector = kind_of(recipe.alarm, ALARMS)
        actions = "; ".join(_describe_effect(recipe.effect)) or "alarms are recorded"
        found.append(f"{WATCHED[recipe.alarm.watch]} (alarm {detector}: {actions})")
    for stage in fields(recipe):
        text = getattr(getattr(recipe, stage.name), "monitors", "")
        if text and stage.name not in inert:
            found.append(str(text))
    return found


def describe_alarm(recipe: Recipe) -> str:
    """Return what an alarm of a recipe means; empty if it has none.

    >>> from dataclasses import replace
    >>> from thalweg.drift import Ddm
    >>> from thalweg.recipes import fedavg
    >>> describe_alarm(replace(fedavg(), alarm=Ddm()))
    'the error on arriving samples has changed (ddm)'
    """
    if recipe.alarm is None:
        return ""
    return f"{RAISED_BY[recipe.alarm.watch]} ({kind_of(recipe.alarm, ALARMS)})"


def _describe_effect(effect: Effect) -> Iterator[str]:
    """Say what follows an alarm.

    >>> "; ".join(_describe_effect(Effect(keep=0.25, reclusters=True)))
    'only the newest 25% of the memory stay; the bank assigns the client to models again'
    """
    if effect.drop_margin is not None:
        yield "samples with outdated labels are dropped"
    if effect.keep < 1:
        yield f"only the newest {effect.keep:.0%} of the memory stay"
    if effect.lr_scales:
        factor, rounds = effect.lr_scales[0], len(effect.lr_scales)
        duration = f"{rounds} round{'s' * (rounds > 1)}"
        yield f"the learning rate is multiplied by {factor:g} for {duration}"
    if effect.opens_state:
        yield "the forecast opens a latent state"
    if effect.reclusters:
        yield "the bank assigns the client to models again"
