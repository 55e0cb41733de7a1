"""Privacy: clients add noise to their updates; the server counts each client's releases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.federation.base import KnowsConcepts
from thalweg.federation.client_state import ClientProgram
from thalweg.federation.context import RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.recipes.base import Recipe

RELEASES = "releases"  # name in `Roster.known`: how many updates each client was asked for


class PrivacyAccounting(RoundExtension):
    """Counts the releases of each client and reports the largest epsilon."""

    def is_used_by(self, recipe: Recipe) -> bool:
        return recipe.privacy is not None

    def start_round(self, ctx: RoundContext) -> None:
        """Count probe rounds, which release updates, too."""
        known = count_releases(ctx.roster.known, ctx.probe_cohorts, ctx.roster.num_clients)
        ctx.roster = replace(ctx.roster, known=known)

    def before_training(self, ctx: RoundContext) -> None:
        known = count_releases(ctx.server.known, [ctx.cohort], ctx.roster.num_clients)
        ctx.server = ctx.server._replace(known=known)

    def after_training(self, ctx: RoundContext) -> None:
        ctx.extra_metrics |= privacy_metrics(ctx.server.known, ctx.recipe)


class NoiseMark(RoundExtension):
    """Marks rounds with privacy noise: 1 if it depends on the seed, 0 if devices drew it."""

    def is_used_by(self, recipe: Recipe) -> bool:
        stages = (recipe.sample_weights, recipe.selection, recipe.bank)
        return recipe.privacy is not None or any(
            getattr(policy, "adds_noise", False) for policy in stages
        )

    def after_training(self, ctx: RoundContext) -> None:
        federation: object = ctx.federation
        ctx.extra_metrics["simulated_noise"] = int(isinstance(federation, KnowsConcepts))


def add_noise(
    program: ClientProgram, deltas: Floats32, rnd: int, client: int, probe_round: int = 0
) -> Floats32:
    """Return the updates (J, P) of one client with noise; a new array."""
    recipe = program.recipe
    if recipe.privacy is None:
        return deltas
    seeded = rng_for(program.seed, Draw.PRIVACY, rnd, client, take=probe_round)
    noisy = recipe.privacy.add_noise(deltas, program.noise.choose_generator(seeded))
    if noisy.shape != deltas.shape or noisy.dtype != np.float32:
        raise ConfigError(
            f"{type(recipe.privacy).__name__}.add_noise must return float32 updates of shape "
            f"{deltas.shape}, got {noisy.dtype} of shape {noisy.shape}."
        )
    return noisy


def count_releases(
    known: Mapping[str, Floats], cohorts: Iterable[Ints], num_clients: int
) -> dict[str, Floats]:
    """Return `known` with one more release for each client of each cohort.

    Requests count, not responses: a response that was lost may have been read on its way.
    """
    releases = known.get(RELEASES, np.zeros(num_clients)).copy()
    for clients in cohorts:
        releases[np.unique(clients)] += 1
    return {**known, RELEASES: releases}


def privacy_metrics(known: Mapping[str, Floats], recipe: Recipe) -> dict[str, float]:
    """Return the epsilon of the client with the most releases, if it is finite."""
    if recipe.privacy is None or RELEASES not in known:
        return {}
    epsilon = recipe.privacy.compute_epsilon(int(known[RELEASES].max(initial=0)))
    return {"update_epsilon": epsilon} if math.isfinite(epsilon) else {}
