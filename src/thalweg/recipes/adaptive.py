"""The recipe `auto`: adaptive policies for data whose changes are not known beforehand."""

from __future__ import annotations

from thalweg.aggregation import Averaged, ByWeight
from thalweg.bank import TwoMixtures
from thalweg.drift import PageHinkley
from thalweg.drift.actions import CombinedActions
from thalweg.memory import Balanced
from thalweg.recipes.base import Recipe
from thalweg.recipes.published import register
from thalweg.selection import BalancedCohort
from thalweg.serving import BestRecent
from thalweg.sessions import Judged, Presence


@register
def auto(*, participation: float = 1.0) -> Recipe:
    """Auto: adapts to label shift, drift and churn, of which it knows nothing beforehand."""
    return Recipe(
        name="auto",
        memory=Balanced(),
        selection=BalancedCohort(participation),
        weights=ByWeight(basis="explained"),
        server=Averaged(power=3.0, models="after"),
        bank=TwoMixtures(),
        session_start=Judged(),
        session_trigger=Presence(),
        serving=BestRecent(),
        alarm=PageHinkley(action=CombinedActions(recluster=True, drop_margin=0.2)),
    )
