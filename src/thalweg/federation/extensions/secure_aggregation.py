"""Secure aggregation: the server sees only the sum of the masked updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thalweg.aggregation import BySamples
from thalweg.aggregation.secure_aggregation import MAX_WEIGHT
from thalweg.core.types import Floats32, Updates
from thalweg.federation.context import RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.federation.messages import build_updates
from thalweg.recipes.base import Recipe
from thalweg.theory.masked_sums import (
    KEY_BYTES,
    NODE_KEY_BYTES,
    SEALED_SHARES_BYTES,
    SHARE_BYTES,
    SIGNATURE_BYTES,
)


class MaskingCosts(RoundExtension):
    """Counts the bytes of masks. The masks themselves are the federation's task."""

    def is_used_by(self, recipe: Recipe) -> bool:
        return recipe.secure_aggregation is not None

    def after_training(self, ctx: RoundContext) -> None:
        down, up = masking_bytes(ctx.recipe, len(ctx.jobs), ctx.server.bank.shape[1])
        ctx.bytes_down += down
        ctx.bytes_up += up


def own_weight(recipe: Recipe, num_samples: int, num_steps: int) -> int:
    """Return the integer by which a client multiplies its update; 0 if it has taken no step."""
    if num_steps == 0:
        return 0
    return min(num_samples, MAX_WEIGHT) if isinstance(recipe.weights, BySamples) else 1


def simulate_masked_sum(recipe: Recipe, updates: Updates, num_asked: int) -> Updates:
    """Replace every update by the weighted mean, which is all that the server learns from masks.

    There are no rows if fewer clients answered than secure aggregation requires of `num_asked`, or
    if fewer than `min_clients` of them have trained. Updates with numbers that are not finite are
    returned as they are, so that validation finds them.
    """
    secure_aggregation = recipe.secure_aggregation
    if secure_aggregation is None or len(updates) == 0 or not np.isfinite(updates.deltas).all():
        return updates
    counts = zip(updates.num_samples.tolist(), updates.num_steps.tolist(), strict=True)
    weights = [own_weight(recipe, samples, steps) for samples, steps in counts]
    contributors = sum(weight > 0 for weight in weights)
    if (
        len(updates) < secure_aggregation.required_clients(num_asked)
        or contributors < secure_aggregation.min_clients
    ):
        return drop_all_updates(updates)
    total = np.zeros(updates.deltas.shape[1], dtype=np.int64)
    for delta, weight in zip(updates.deltas, weights, strict=True):
        total += secure_aggregation.encode_update(delta, weight)
    mean = secure_aggregation.decode_mean(total, sum(weights))
    assert mean is not None  # simulated clients encode correctly
    return replace(updates, deltas=repeat_mean(mean, len(updates)))


def repeat_mean(mean: Floats32, count: int) -> Floats32:
    """Return (K, P), a row with the mean for each client."""
    return np.repeat(mean[None], count, axis=0)


def masking_bytes(recipe: Recipe, num_clients: int, num_params: int) -> tuple[int, int]:
    """Return the bytes down and up that masks add to a round in which all clients answer.

    A masked update has twice the size. The rest are keys, shares, signatures and the disclosure of
    shares, for every pair of clients.
    """
    if recipe.secure_aggregation is None:
        return 0, 0
    pairs = num_clients**2
    keys = 3 * KEY_BYTES + NODE_KEY_BYTES + SIGNATURE_BYTES
    status_and_weight = 9
    down = pairs * (keys + status_and_weight + SIGNATURE_BYTES + SEALED_SHARES_BYTES)
    up = num_clients * (4 * num_params + keys + SIGNATURE_BYTES) + pairs * (
        SEALED_SHARES_BYTES + SHARE_BYTES
    )
    return down, up


def drop_all_updates(updates: Updates) -> Updates:
    """Return no updates, because too few clients answered for a masked sum."""
    empty = build_updates([], updates.deltas.shape[1])
    extra_metrics = {**updates.extra_metrics, "too_few": 1}
    return replace(empty, extra_metrics=extra_metrics, rejections=updates.rejections)
