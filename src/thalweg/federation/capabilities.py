"""Optional capabilities of the policies of a recipe, looked up once."""

from __future__ import annotations

from functools import cached_property

from thalweg.aggregation import Reports
from thalweg.bank import SplitsSamples
from thalweg.core.capabilities import CountsLabels, ServerPart
from thalweg.forecast import Forecast, RecognisesStates, resolve_forecast
from thalweg.local import FinishesRound, ResetsPerSession, StatefulObjective, UploadsFromObjective
from thalweg.memory import NeedsLastLayer, PredictsRenewal
from thalweg.recipes.base import Recipe
from thalweg.streams import Stream


class Capabilities:
    """Optional capabilities of the recipe of a subclass; None or False if unsupported."""

    recipe: Recipe
    stream: Stream

    @cached_property
    def forecast(self) -> Forecast:
        """The recipe's forecast; the default depends on whether the states are known."""
        num_states = self.stream.state_table.num_states
        return resolve_forecast(self.recipe.forecast, num_states, self.recipe.uses_forecast)

    @cached_property
    def forecast_with_recognition(self) -> RecognisesStates | None:
        """The forecast if it defines its own states."""
        return self.forecast if isinstance(self.forecast, RecognisesStates) else None

    @cached_property
    def weights_with_reports(self) -> Reports | None:
        """The recipe's weights if they need numbers from the clients."""
        return self.recipe.weights if isinstance(self.recipe.weights, Reports) else None

    @cached_property
    def memory_with_renewal(self) -> PredictsRenewal | None:
        """The recipe's memory if it can predict how much of it will be renewed."""
        return self.recipe.memory if isinstance(self.recipe.memory, PredictsRenewal) else None

    @cached_property
    def memory_with_probe(self) -> NeedsLastLayer | None:
        """The recipe's memory if it evaluates the model."""
        return self.recipe.memory if isinstance(self.recipe.memory, NeedsLastLayer) else None

    @cached_property
    def objective_with_state(self) -> StatefulObjective | None:
        """The recipe's objective if it has a state at the client."""
        objective: object = self.recipe.objective
        return objective if isinstance(objective, StatefulObjective) else None

    @cached_property
    def objective_with_finish(self) -> FinishesRound | None:
        """The recipe's objective if it updates a state after the last step of a round."""
        objective: object = self.objective_with_state
        return objective if isinstance(objective, FinishesRound) else None

    @cached_property
    def is_reset_per_session(self) -> bool:
        """Whether the state of the recipe's objective is reset in every session."""
        objective: object = self.objective_with_state
        return isinstance(objective, ResetsPerSession) and objective.per_session

    @cached_property
    def selection_with_counts(self) -> CountsLabels | None:
        """The recipe's selection if it counts the labels that arrive."""
        return self.recipe.selection if isinstance(self.recipe.selection, CountsLabels) else None

    @cached_property
    def bank_with_split(self) -> SplitsSamples | None:
        """The recipe's bank if clients split their samples among several models."""
        bank: object = self.recipe.bank
        return bank if isinstance(bank, SplitsSamples) else None

    @cached_property
    def needs_arrival_rounds(self) -> bool:
        """Whether a policy needs the round in which each sample arrived."""
        shrinks = 0 < self.recipe.effect.keep < 1
        return self.recipe.sample_weights is not None or self.bank_with_split is not None or shrinks

    @cached_property
    def needs_probe(self) -> bool:
        """Whether a client evaluates its model between ticks.

        If not, its round can be planned ahead.
        """
        return (
            self.memory_with_probe is not None
            or self.objective_with_state is not None
            or isinstance(self.recipe.objective, UploadsFromObjective | ServerPart)
            or self.recipe.stopping is not None
        )
