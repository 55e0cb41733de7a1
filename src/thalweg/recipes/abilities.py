"""What the policies of a recipe can do beyond the ordinary round: asked once, here, by what they have."""

from __future__ import annotations

from functools import cached_property

from thalweg.aggregation import Divides, Reports
from thalweg.core.talk import Talks, Tallies
from thalweg.forecast import Recognises
from thalweg.local import Concludes, PerSession, Remembers, SaysFromObjective
from thalweg.memory import Foresees, LooksAtModel
from thalweg.recipes.base import Recipe


class Abilities:
    """Of the recipe that a subclass has; none where a policy lacks the ability."""

    recipe: Recipe

    @cached_property
    def reporting(self) -> Reports | None:
        """The recipe's weights, if they want numbers from the clients."""
        return self.recipe.weights if isinstance(self.recipe.weights, Reports) else None

    @cached_property
    def foreseeing(self) -> Foresees | None:
        """The recipe's memory, if it can say beforehand how much it will renew."""
        return self.recipe.memory if isinstance(self.recipe.memory, Foresees) else None

    @cached_property
    def remembering(self) -> Remembers | None:
        """The recipe's objective, if it keeps something at the client."""
        return self.recipe.objective if isinstance(self.recipe.objective, Remembers) else None

    @cached_property
    def concluding(self) -> Concludes | None:
        """The recipe's objective, if it keeps something and wants to know what came of a round."""
        objective: object = self.remembering
        return objective if isinstance(objective, Concludes) else None

    @cached_property
    def forgets(self) -> bool:
        """Does the recipe's objective begin anew with every session?"""
        objective: object = self.remembering
        return isinstance(objective, PerSession) and objective.per_session

    @cached_property
    def looking(self) -> LooksAtModel | None:
        """The recipe's memory, if it looks at the model."""
        return self.recipe.memory if isinstance(self.recipe.memory, LooksAtModel) else None

    @cached_property
    def tallying(self) -> Tallies | None:
        """The recipe's selection, if it counts the labels that arrive."""
        return self.recipe.selection if isinstance(self.recipe.selection, Tallies) else None

    @cached_property
    def dividing(self) -> Divides | None:
        """The recipe's bank, if clients divide their samples among several models."""
        bank: object = self.recipe.bank
        return bank if isinstance(bank, Divides) else None

    @property
    def notes_times(self) -> bool:
        """Does anybody want to know in which round a sample came?"""
        shrinks = 0 < self.recipe.effect.keep < 1
        return self.recipe.emphasis is not None or self.dividing is not None or shrinks

    @cached_property
    def is_attentive(self) -> bool:
        """Does a client look at its model between ticks? Else its round can be planned ahead."""
        return (
            self.looking is not None
            or self.remembering is not None
            or isinstance(self.recipe.objective, SaysFromObjective | Talks)
            or self.recipe.stopping is not None
        )

    @cached_property
    def recognising(self) -> Recognises | None:
        """The recipe's oracle, if it tells states apart by itself."""
        return self.recipe.forecast if isinstance(self.recipe.forecast, Recognises) else None
