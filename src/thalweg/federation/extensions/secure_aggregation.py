"""Updates of which the server sees the sum alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thalweg.aggregation import BySamples
from thalweg.aggregation.secure_aggregation import MAX_WEIGHT
from thalweg.core.types import Floats32, Updates
from thalweg.federation.tables import build_updates
from thalweg.recipes.base import Recipe
from thalweg.theory.masked_sums import KEY_BYTES, SEALED_SHARES_BYTES, SHARE_BYTES


def own_weight(recipe: Recipe, num_samples: int, num_steps: int) -> int:
    """What a client multiplies its update by: the recipe's weights, as far as a client knows them itself.

    Who has not learnt anything has no say.
    """
    if num_steps == 0:
        return 0
    return min(num_samples, MAX_WEIGHT) if isinstance(recipe.weights, BySamples) else 1


def simulate_masked_sum(recipe: Recipe, updates: Updates, asked: int) -> Updates:
    """What the server would see of updates of one model, had their clients masked them: everybody's is the mean.

    So whatever reads their weighted mean, reads that. No rows if too few of those who were asked are among them.
    Numbers that are not finite are left to be found at the door.
    """
    secure_aggregation = recipe.secure_aggregation
    if secure_aggregation is None or len(updates) == 0 or not np.isfinite(updates.deltas).all():
        return updates
    if len(updates) < secure_aggregation.required_clients(asked):
        return drop_all_updates(updates)
    total, whole = np.zeros(updates.deltas.shape[1], dtype=np.int64), 0
    for delta, samples, steps in zip(
        updates.deltas, updates.num_samples.tolist(), updates.num_steps.tolist(), strict=True
    ):
        weight = own_weight(recipe, samples, steps)
        total += secure_aggregation.encode_update(delta, weight)
        whole += weight
    mean = secure_aggregation.decode_mean(total, whole)
    assert mean is not None  # nobody is hostile to itself
    return replace(updates, deltas=repeat_mean(mean, len(updates)))


def repeat_mean(mean: Floats32, number: int) -> Floats32:
    """(K, P)"""
    return np.repeat(mean[None], number, axis=0)


def masking_bytes(recipe: Recipe, number: int, num_params: int) -> tuple[int, int]:
    """Down and up: what so many clients pay for masks, besides models and updates, if all of them are heard.

    An update is twice as long; the rest are keys, shares and what closes them, for every pair of clients.
    """
    if recipe.secure_aggregation is None:
        return 0, 0
    down = number**2 * (3 * KEY_BYTES + SEALED_SHARES_BYTES)
    up = number * (4 * num_params + 3 * KEY_BYTES) + number**2 * (SEALED_SHARES_BYTES + SHARE_BYTES)
    return down, up


def drop_all_updates(updates: Updates) -> Updates:
    """As if nobody had replied, because too few have."""
    nobody = build_updates([], updates.deltas.shape[1])
    extra_metrics = {**updates.extra_metrics, "too_few": 1}
    return replace(nobody, extra_metrics=extra_metrics, rejections=updates.rejections)
