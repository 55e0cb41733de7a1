"""Updates that are hidden in noise before they leave a client, and what clients have disclosed by then."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.recipes.base import Recipe

RELEASES = "releases"  # known of every client: how many replies it was asked for


def add_noise(
    recipe: Recipe,
    deltas: Floats32,
    seed: int | None,
    rnd: int,
    client: int,
    probe_round: int = 0,
) -> Floats32:
    """(J, P) what one client sends of its updates, which are not written to.

    Without a seed the noise is drawn from the system: who knows the seed of a run could subtract the other.
    """
    if recipe.privacy is None:
        return deltas
    by_seed = None if seed is None else rng_for(seed, Draw.PRIVACY, rnd, client, take=probe_round)
    sent = recipe.privacy.add_noise(deltas, by_seed or np.random.default_rng())
    if sent.shape != deltas.shape or sent.dtype != np.float32:
        raise ConfigError(
            f"{type(recipe.privacy).__name__}.add_noise must return updates of shape {deltas.shape} in single "
            f"precision, got {sent.dtype} of shape {sent.shape}."
        )
    return sent


def count_releases(
    known: Mapping[str, Floats], recipe: Recipe, asked: Iterable[Ints], num_clients: int
) -> dict[str, Floats]:
    """What is known, with one release more for everybody in each of some groups of clients.

    Who was asked counts, heard or not: a reply that was lost may have been read on its way.
    """
    if recipe.privacy is None:
        return dict(known)
    releases = known.get(RELEASES, np.zeros(num_clients)).copy()
    for clients in asked:
        releases[np.unique(clients)] += 1
    return {**known, RELEASES: releases}


def privacy_metrics(known: Mapping[str, Floats], recipe: Recipe) -> dict[str, float]:
    """For the metrics: the epsilon of the client that was asked most often."""
    if recipe.privacy is None or RELEASES not in known:
        return {}
    spent = recipe.privacy.compute_epsilon(int(known[RELEASES].max(initial=0)))
    return {"update_epsilon": spent} if math.isfinite(spent) else {}
