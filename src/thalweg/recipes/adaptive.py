"""The recipe `auto`: adaptive policies for data whose changes are not known beforehand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thalweg.aggregation import Averaged, ByArrivals
from thalweg.bank import BANKS, OneModel, TwoMixtures
from thalweg.core.config import kind_of
from thalweg.drift import ALARMS, ExcessErrors, WindowTest
from thalweg.drift.actions import CombinedActions
from thalweg.memory import Balanced
from thalweg.recipes.base import Recipe
from thalweg.recipes.published import register
from thalweg.selection import BalancedCohort
from thalweg.serving import BestRecent
from thalweg.sessions import Judged, Presence


@register
def auto(*, participation: float = 1.0) -> Recipe:
    """Auto: adapts to label shift, drift and churn that are not known beforehand.

    A combination of ours. The weights of predictors are those of Herbster and Warmuth: "Tracking
    the best expert", Machine Learning 1998; the mixtures of models follow FedRC and FedDAA.
    """
    return Recipe(
        name="auto",
        memory=Balanced(half_life=0.1),
        selection=BalancedCohort(participation),
        weights=ByArrivals(),
        server=Averaged(power=10.0, models="after"),
        bank=TwoMixtures(),
        session_start=Judged(),
        session_trigger=Presence(),
        serving=BestRecent(),
        alarm=ExcessErrors(action=CombinedActions(recluster=True, drop_margin=0.2)),
    )


# Parts of `auto` in a regression. Models are opened if labels contradict each other, and alarms
# count wrong predictions: targets that are numbers have neither.
TABLES: dict[str, dict[str, Any]] = {"bank": BANKS, "alarm": ALARMS}
FOR_REGRESSION: dict[str, Any] = {
    "bank": OneModel(),
    "alarm": WindowTest(action=CombinedActions(drop_margin=0.2)),
}


def adapt_to_regression(recipe: Recipe) -> Recipe:
    """Return `auto` with parts that work with targets that are numbers.

    Only parts that need classes are replaced, and only if they are those of `auto`.

    >>> adapted = adapt_to_regression(auto())
    >>> type(adapted.bank).__name__, type(adapted.alarm).__name__
    ('OneModel', 'WindowTest')
    """
    usual = auto()
    changes = {
        stage: part
        for stage, part in FOR_REGRESSION.items()
        if getattr(recipe, stage) == getattr(usual, stage)
    }
    return replace(recipe, **changes)


def list_adapted(recipe: Recipe) -> dict[str, str]:
    """Return the names of the parts of `auto`, by stage, that `adapt_to_regression` has replaced.

    >>> list_adapted(adapt_to_regression(auto()))
    {'bank': 'one-model', 'alarm': 'window-test'}
    """
    if recipe.name != "auto" or any(getattr(recipe, s) != p for s, p in FOR_REGRESSION.items()):
        return {}
    return {stage: kind_of(part, TABLES[stage]) for stage, part in FOR_REGRESSION.items()}
