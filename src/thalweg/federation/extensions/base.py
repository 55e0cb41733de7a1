"""The points of a server round at which optional features can attach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thalweg.core.types import Floats, Updates
from thalweg.recipes.base import Recipe

if TYPE_CHECKING:
    from thalweg.federation.context import RoundContext


class RoundExtension:
    """An optional feature of a round. Subclasses override some of the hooks.

    The hooks are called in this order. In a round without a cohort only `start_round` is called.
    """

    def is_used_by(self, recipe: Recipe) -> bool:
        """Return whether this extension takes part in the rounds of a recipe."""
        return True

    def start_round(self, ctx: RoundContext) -> None:
        """Run before the cohort is chosen."""

    def before_training(self, ctx: RoundContext) -> None:
        """Run when the jobs are known, before clients receive them."""

    def after_training(self, ctx: RoundContext) -> None:
        """Run when the updates have been validated, before they are aggregated."""

    def adjust_weights(self, ctx: RoundContext, updates: Updates, weights: Floats) -> Floats:
        """Return the aggregation weights (K,) of the updates of one model."""
        return weights

    def finish_round(self, ctx: RoundContext) -> None:
        """Run when the models have been updated."""
