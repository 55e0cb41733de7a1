"""Updates of which the server sees the sum alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thalweg.aggregation import BySamples
from thalweg.aggregation.secrecy import MOST_WEIGHT
from thalweg.core.types import Floats32, Updates
from thalweg.recipes.base import Recipe
from thalweg.recipes.tables import updates_of
from thalweg.theory.masked_sums import KEY_BYTES, LETTER_BYTES, SHARE_BYTES


def own_weight(recipe: Recipe, num_samples: int, num_steps: int) -> int:
    """What a client multiplies its update by: the recipe's weights, as far as a client knows them itself.

    Who has not learnt anything has no say.
    """
    if num_steps == 0:
        return 0
    return min(num_samples, MOST_WEIGHT) if isinstance(recipe.weights, BySamples) else 1


def summed(recipe: Recipe, updates: Updates, asked: int) -> Updates:
    """What the server would see of updates of one model, had their clients masked them: everybody's is the mean.

    So whatever reads their weighted mean, reads that. No rows if too few of those who were asked are among them.
    Numbers that are not finite are left to be found at the door.
    """
    secrecy = recipe.secrecy
    if secrecy is None or len(updates) == 0 or not np.isfinite(updates.deltas).all():
        return updates
    if len(updates) < secrecy.needed(asked):
        return unheard(updates)
    total, whole = np.zeros(updates.deltas.shape[1], dtype=np.int64), 0
    for delta, samples, steps in zip(
        updates.deltas, updates.num_samples.tolist(), updates.num_steps.tolist(), strict=True
    ):
        weight = own_weight(recipe, samples, steps)
        total += secrecy.whole(delta, weight)
        whole += weight
    mean = secrecy.mean(total, whole)
    assert mean is not None  # nobody is hostile to itself
    return replace(updates, deltas=same_for_all(mean, len(updates)))


def same_for_all(mean: Floats32, number: int) -> Floats32:
    """(K, P)"""
    return np.repeat(mean[None], number, axis=0)


def masking_bytes(recipe: Recipe, number: int, num_params: int) -> tuple[int, int]:
    """Down and up: what so many clients pay for masks, besides models and updates, if all of them are heard.

    An update is twice as long; the rest are keys, shares and what closes them, for every pair of clients.
    """
    if recipe.secrecy is None:
        return 0, 0
    down = number**2 * (3 * KEY_BYTES + LETTER_BYTES)
    up = number * (4 * num_params + 3 * KEY_BYTES) + number**2 * (LETTER_BYTES + SHARE_BYTES)
    return down, up


def unheard(updates: Updates) -> Updates:
    """As if nobody had replied, because too few have."""
    nobody = updates_of([], updates.deltas.shape[1])
    remarks = {**updates.remarks, "too_few": 1}
    return replace(nobody, remarks=remarks, refusals=updates.refusals)
