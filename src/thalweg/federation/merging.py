"""Updates of one model become the next: what is hostile is made harmless, then the server rule moves the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from thalweg.aggregation import CombinedUpdates
from thalweg.core.types import Floats, Floats32
from thalweg.federation.checks import check_combined
from thalweg.recipes.base import Recipe


class Merged(NamedTuple):
    """A model after a round."""

    rule: Any  # what the server rule remembers of it
    model: Floats32  # (P,)
    extra_metrics: Mapping[str, float]  # of the robust rule, for the metrics


def merge(recipe: Recipe, rule: Any, model: Floats32, deltas: Floats32, weights: Floats) -> Merged:
    """The model (P,) after updates (K, P) that count by weights (K,).

    It stays as it is, and so does what the rule remembers, if the robust rule leaves nothing of them.
    """
    left = CombinedUpdates(deltas, weights)
    if recipe.robust is not None:
        left = recipe.robust.combine(deltas, weights)
        check_combined(left, deltas.shape[1], recipe.robust)
    if len(left.deltas) == 0:
        return Merged(rule, model, left.extra_metrics)
    rule, model = recipe.server.step(rule, model, left.deltas, left.weights)
    return Merged(rule, model, left.extra_metrics)


def sum_metrics(extra_metrics: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """What is said of several models, as one.

    >>> sum_metrics([{"clipped": 2}, {}, {"clipped": 1, "too_few": 1}])
    {'clipped': 3, 'too_few': 1}
    """
    total: dict[str, float] = {}
    for each in extra_metrics:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total
