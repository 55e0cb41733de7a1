"""Privacy: clients add noise to their updates; the server counts each client's releases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from thalweg.core.capabilities import Surveys
from thalweg.core.errors import ConfigError
from thalweg.core.noise import NoiseGenerator
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.federation.base import KnowsConcepts
from thalweg.federation.client_state import ClientProgram
from thalweg.federation.context import RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.federation.messages import TrainResponse
from thalweg.local.privacy import HidesNumbers, Privacy, RoundNumbers
from thalweg.recipes.base import Recipe
from thalweg.recipes.disclosure import (
    compute_response_cost,
    compute_survey_cost,
    hides_who_takes_part,
    list_exact_parts,
)
from thalweg.theory import rdp_epsilon, sampled_gaussian_rdp
from thalweg.theory.privacy_account import ORDERS

# Names in `Roster.known`.
RELEASES = "releases"  # how many updates each client was asked for
SURVEYS = "surveys"  # how many surveys of the selection each client was sent
DRAWN_RDP = "drawn_rdp"  # (N, orders) what the models disclose about each client


class PrivacyAccounting(RoundExtension):
    """Counts the releases of each client and reports the largest epsilon."""

    def is_used_by(self, recipe: Recipe) -> bool:
        return recipe.privacy is not None

    def start_round(self, ctx: RoundContext) -> None:
        """Count surveys, and probe rounds, which release updates, too."""
        number, recipe, surveyed = ctx.roster.num_clients, ctx.recipe, ctx.roster.surveyed
        known = count_releases(ctx.roster.known, ctx.probe_cohorts, number)
        if isinstance(recipe.selection, Surveys) and surveyed is not None:
            known = count_releases(known, [surveyed], number, SURVEYS)
        for cohort in ctx.probe_cohorts:
            known = count_draw(known, cohort, ctx.roster.present, recipe, number)
        ctx.roster = replace(ctx.roster, known=known)

    def before_training(self, ctx: RoundContext) -> None:
        number, known = ctx.roster.num_clients, dict(ctx.server.known)
        known = count_releases(known, [ctx.cohort], number)
        known = count_draw(known, ctx.cohort, ctx.roster.present, ctx.recipe, number)
        ctx.server = ctx.server._replace(known=known)

    def after_training(self, ctx: RoundContext) -> None:
        ctx.extra_metrics |= privacy_metrics(ctx.server.known, ctx.recipe)
        if getattr(ctx.recipe.privacy, "losses", "exact") == "omit" and ctx.updates is not None:
            ctx.updates = replace(ctx.updates, losses=np.full(len(ctx.updates), np.nan))


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


def protect_response(
    program: ClientProgram, response: TrainResponse, probe_round: int = 0
) -> TrainResponse:
    """Return what a client sends in place of its response, with the noise of `Recipe.privacy`."""
    privacy, client = program.recipe.privacy, response.client
    if privacy is None:
        return response
    seeded = rng_for(program.seed, Draw.PRIVACY, response.rnd, client, take=probe_round)
    rng = program.noise.choose_generator(seeded)
    response = replace(response, deltas=_add_noise(privacy, response.deltas, rng))
    if not isinstance(privacy, HidesNumbers):
        return response
    numbers = RoundNumbers(**{name: getattr(response, name) for name in RoundNumbers._fields})
    hidden = privacy.hide_numbers(numbers, program.stream.capacity(client), rng)
    return replace(response, **hidden._asdict())


def _add_noise(privacy: Privacy, deltas: Floats32, rng: NoiseGenerator) -> Floats32:
    """Return the updates (J, P) of one client with noise; a new array."""
    noisy = privacy.add_noise(deltas, rng)
    if noisy.shape != deltas.shape or noisy.dtype != np.float32:
        raise ConfigError(
            f"{type(privacy).__name__}.add_noise must return float32 updates of shape "
            f"{deltas.shape}, got {noisy.dtype} of shape {noisy.shape}."
        )
    return noisy


def count_releases(
    known: Mapping[str, Floats],
    cohorts: Iterable[Ints],
    num_clients: int,
    name: str = RELEASES,
) -> dict[str, Floats]:
    """Return `known` with one more release for each client of each cohort.

    Requests count, not responses: a response that was lost may have been read on its way.
    """
    releases = known.get(name, np.zeros(num_clients)).copy()
    for clients in cohorts:
        releases[np.unique(clients)] += 1
    return {**known, name: releases}


def count_draw(
    known: Mapping[str, Floats], cohort: Ints, present: Ints, recipe: Recipe, num_clients: int
) -> dict[str, Floats]:
    """Return `known` after clients were drawn; if uniformly, all present ones pay for the draw."""
    privacy: object = recipe.privacy
    if not isinstance(privacy, HidesNumbers) or not hides_who_takes_part(recipe):
        return dict(known)
    cost = privacy.update_cost
    rdp = known.get(DRAWN_RDP, np.zeros((num_clients, len(ORDERS)))).copy()
    rdp[present] += sampled_gaussian_rdp(math.sqrt(cost.mu_squared), len(cohort) / len(present))
    return {**known, DRAWN_RDP: rdp}


def privacy_metrics(known: Mapping[str, Floats], recipe: Recipe) -> dict[str, float]:
    """Return the largest epsilons of the clients, if they are finite.

    update_epsilon: of the updates, against the server. round_epsilon: of all that clients send in
    rounds, if nothing is sent without noise. model_epsilon: of the models, against those who see
    nothing else, if clients are drawn uniformly.
    """
    privacy = recipe.privacy
    if privacy is None or RELEASES not in known:
        return {}
    releases = known[RELEASES].astype(int)
    found = {"update_epsilon": privacy.compute_epsilon(int(releases.max(initial=0)))}
    if isinstance(privacy, HidesNumbers):
        if not list_exact_parts(recipe):
            surveys = known.get(SURVEYS, np.zeros(len(releases))).astype(int)
            found["round_epsilon"] = _round_epsilon(recipe, privacy.delta, releases, surveys)
        if DRAWN_RDP in known:
            rdp = known[DRAWN_RDP].max(axis=0)
            found["model_epsilon"] = min(rdp_epsilon(rdp, privacy.delta), found["update_epsilon"])
    return {name: epsilon for name, epsilon in found.items() if math.isfinite(epsilon)}


def _round_epsilon(recipe: Recipe, delta: float, releases: Ints, surveys: Ints) -> float:
    response, survey = compute_response_cost(recipe), compute_survey_cost(recipe, "selection")
    pairs = set(zip(releases.tolist(), surveys.tolist(), strict=True))
    costs = [response.times(number) + survey.times(asked) for number, asked in pairs]
    return max((cost.epsilon(delta) for cost in costs), default=0.0)
