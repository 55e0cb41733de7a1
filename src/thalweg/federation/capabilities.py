"""What the policies of a recipe can do beyond the ordinary round: asked once, here, by what they have."""

from __future__ import annotations

from functools import cached_property

from thalweg.aggregation import Reports
from thalweg.bank import SplitsSamples
from thalweg.core.capabilities import CountsLabels, ServerHalf
from thalweg.forecast import RecognisesStates
from thalweg.local import FinishesRound, ResetsPerSession, StatefulObjective, UploadsFromObjective
from thalweg.memory import NeedsLastLayer, PredictsRenewal
from thalweg.recipes.base import Recipe


class Capabilities:
    """Of the recipe that a subclass has; none where a policy lacks the ability."""

    recipe: Recipe

    @cached_property
    def weights_with_reports(self) -> Reports | None:
        """The recipe's weights, if they want numbers from the clients."""
        return self.recipe.weights if isinstance(self.recipe.weights, Reports) else None

    @cached_property
    def memory_with_renewal(self) -> PredictsRenewal | None:
        """The recipe's memory, if it can say beforehand how much it will renew."""
        return self.recipe.memory if isinstance(self.recipe.memory, PredictsRenewal) else None

    @cached_property
    def objective_with_state(self) -> StatefulObjective | None:
        """The recipe's objective, if it keeps something at the client."""
        return (
            self.recipe.objective if isinstance(self.recipe.objective, StatefulObjective) else None
        )

    @cached_property
    def objective_with_conclude(self) -> FinishesRound | None:
        """The recipe's objective, if it keeps something and wants to know what came of a round."""
        objective: object = self.objective_with_state
        return objective if isinstance(objective, FinishesRound) else None

    @cached_property
    def is_reset_per_session(self) -> bool:
        """Does the recipe's objective begin anew with every session?"""
        objective: object = self.objective_with_state
        return isinstance(objective, ResetsPerSession) and objective.per_session

    @cached_property
    def memory_with_probe(self) -> NeedsLastLayer | None:
        """The recipe's memory, if it looks at the model."""
        return self.recipe.memory if isinstance(self.recipe.memory, NeedsLastLayer) else None

    @cached_property
    def selection_with_counts(self) -> CountsLabels | None:
        """The recipe's selection, if it counts the labels that arrive."""
        return self.recipe.selection if isinstance(self.recipe.selection, CountsLabels) else None

    @cached_property
    def bank_with_split(self) -> SplitsSamples | None:
        """The recipe's bank, if clients divide their samples among several models."""
        bank: object = self.recipe.bank
        return bank if isinstance(bank, SplitsSamples) else None

    @property
    def needs_arrival_rounds(self) -> bool:
        """Does anybody want to know in which round a sample came?"""
        shrinks = 0 < self.recipe.effect.keep < 1
        return self.recipe.sample_weights is not None or self.bank_with_split is not None or shrinks

    @cached_property
    def needs_probe(self) -> bool:
        """Does a client look at its model between ticks? Else its round can be planned ahead."""
        return (
            self.memory_with_probe is not None
            or self.objective_with_state is not None
            or isinstance(self.recipe.objective, UploadsFromObjective | ServerHalf)
            or self.recipe.stopping is not None
        )

    @cached_property
    def forecast_with_recognition(self) -> RecognisesStates | None:
        """The recipe's oracle, if it tells states apart by itself."""
        return self.recipe.forecast if isinstance(self.recipe.forecast, RecognisesStates) else None
