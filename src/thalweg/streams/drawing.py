"""Random draws that several worlds share: rows of a pool, presence, availability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Ints


def draw_rows(pool: Ints, count: int, rng: np.random.Generator) -> Ints:
    """`count` rows of a pool in random order; no row repeats before all rows have been drawn once.

    The first k rows are therefore a draw without replacement if the pool has at least k rows.
    """
    if 4 * count < len(pool):
        return pool[rng.choice(len(pool), count, replace=False)]
    if count <= len(pool):
        return pool.take(rng.permutation(len(pool))[:count])
    times = -(-count // len(pool))
    return np.concatenate([rng.permutation(pool) for _ in range(times)])[:count]


def draw_present(availability: Floats, seed: int, rnd: int) -> Ints:
    """Ids of the present clients; each client is present independently with its own probability."""
    return np.flatnonzero(
        rng_for(seed, Draw.AVAILABILITY, rnd).random(len(availability)) < availability
    )


def draw_availability(
    num_clients: int, mean: float, spread: float, rng: np.random.Generator
) -> Floats:
    """(N,) probabilities from N(mean, spread²), clipped to [min(0.01, mean), 1]."""
    return np.clip(rng.normal(mean, spread, num_clients), min(0.01, mean), 1.0)


def moving_rounds(rounds: int, here: float, collects_when_absent: bool) -> float:
    """Expected number of rounds in which a client's stream advances."""
    return float(rounds) if collects_when_absent else here


def class_mixes(rows: Sequence[Ints], labels: Ints, num_classes: int) -> Floats:
    """(N, C) share of each class in the rows of each client; zeros for a client without rows.

    >>> rows = [np.array([0, 1, 3]), np.array([], dtype=np.int64)]
    >>> class_mixes(rows, np.array([0, 0, 1, 1]), 2).round(2).tolist()
    [[0.67, 0.33], [0.0, 0.0]]
    """
    counts = np.stack([np.bincount(labels[mine], minlength=num_classes) for mine in rows])
    mixes: Floats = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return mixes
