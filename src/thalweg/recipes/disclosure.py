"""What clients disclose with a recipe: the parts without noise, and the cost of the others."""

from __future__ import annotations

import math

from thalweg.aggregation import Equal, RejectLate
from thalweg.core.capabilities import Surveys
from thalweg.local import HidesNumbers
from thalweg.recipes.base import Recipe, has_single_model
from thalweg.recipes.compatibility import find_uploading_stages, sends_reports
from thalweg.theory import PrivacyCost

DELTA = 1e-5  # with which costs are compared
SURVEY_STAGES = ("sample_weights", "selection", "bank", "session_start")


def list_exact_parts(recipe: Recipe) -> tuple[str, ...]:
    """Return what clients send without noise, in words; empty if everything is protected.

    >>> from thalweg.recipes import fedavg
    >>> list_exact_parts(fedavg())
    ('updates', 'losses', 'counts', 'predictions')
    """
    privacy = recipe.privacy
    parts = [] if privacy is not None else ["updates"]
    numbers = ("losses", "counts", "predictions")
    parts += privacy.exact_parts if isinstance(privacy, HidesNumbers) else numbers
    parts += [f"uploads of the {stage}" for stage in sorted(find_uploading_stages(recipe))]
    if sends_reports(recipe):
        parts.append("reports of the weights")
    for stage in SURVEY_STAGES:
        policy = getattr(recipe, stage)
        if isinstance(policy, Surveys) and compute_survey_cost(recipe, stage) == EXACT:
            parts.append(f"survey responses of the {stage}")
    return tuple(parts)


def compute_response_cost(recipe: Recipe) -> PrivacyCost:
    """Return what the response to one train request discloses, apart from the exact parts."""
    return recipe.privacy.cost if isinstance(recipe.privacy, HidesNumbers) else EXACT


def compute_survey_cost(recipe: Recipe, stage: str) -> PrivacyCost:
    """Return what the response to one survey discloses."""
    cost = getattr(getattr(recipe, stage), "survey_cost", None)
    return cost if isinstance(cost, PrivacyCost) else EXACT


def compute_least_noise(recipe: Recipe) -> float:
    """Return the smallest noise of what clients send, in units of half the largest change.

    That of updates is `Gaussian.noise`, that of label counts 2 / epsilon; 0 if a part is exact.
    """
    if list_exact_parts(recipe):
        return 0.0
    survey = [
        compute_survey_cost(recipe, stage)
        for stage in SURVEY_STAGES
        if isinstance(getattr(recipe, stage), Surveys)
    ]
    noises = [2 / epsilon for cost in survey for epsilon in cost.laplace]
    return min([float(getattr(recipe.privacy, "noise", 0.0)), *noises], default=math.inf)


def find_weaker_part(recipe: Recipe, other: Recipe) -> str | None:
    """Return, in words, what a recipe discloses beyond another one; None if nothing.

    >>> from thalweg.recipes import fedavg
    >>> find_weaker_part(fedavg(), fedavg())
    """
    more = [each for each in list_exact_parts(recipe) if each not in list_exact_parts(other)]
    if more:
        return f"{', '.join(more)} without noise"
    costs = {"a response": (compute_response_cost(recipe), compute_response_cost(other))}
    for stage in SURVEY_STAGES:
        if isinstance(getattr(recipe, stage), Surveys):
            costs[f"a survey response of the {stage}"] = (
                compute_survey_cost(recipe, stage),
                compute_survey_cost(other, stage),
            )
    for what, (theirs, ours) in costs.items():
        more_epsilon, epsilon = theirs.epsilon(DELTA), ours.epsilon(DELTA)
        if more_epsilon > epsilon:
            return f"{what} has epsilon {more_epsilon:.3g} in place of {epsilon:.3g}"
    return None


def hides_who_takes_part(recipe: Recipe) -> bool:
    """Return whether the models do not depend on who is drawn, but for the updates themselves.

    This needs a uniform draw without replacement, equal weights, one model, and no late updates.
    """
    return (
        bool(getattr(recipe.selection, "is_uniform", False))
        and isinstance(recipe.weights, Equal)
        and isinstance(recipe.staleness, RejectLate)
        and has_single_model(recipe)
        and recipe.alarm is None
        and not find_uploading_stages(recipe)
    )


EXACT = PrivacyCost.unlimited()
