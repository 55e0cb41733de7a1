"""The recipe `auto`: adaptive policies for data whose changes are not known beforehand."""

from __future__ import annotations

from thalweg.aggregation import Averaged, ByArrivals
from thalweg.bank import TwoMixtures
from thalweg.drift import ExcessErrors
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
