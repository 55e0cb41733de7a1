"""Surveys: the server asks clients for values before it chooses the cohort or assigns models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from thalweg.core.capabilities import ModelProbe, Surveys
from thalweg.core.errors import NOT_FINITE, ConfigError, Diverged, ShapeMismatch
from thalweg.core.noise import NoiseGenerator
from thalweg.core.remedies import format_setting
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints, Supply, SurveyResponses
from thalweg.federation.base import SurveyStage
from thalweg.federation.client_state import ClientProgram, ClientState
from thalweg.federation.context import ClientContext, RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.federation.ingest import catch_up
from thalweg.federation.messages import SurveyRequest

MakeProbe = Callable[[Floats32], ModelProbe]  # makes a probe of fixed parameters (P,)

SURVEY_DRAWS = {
    "sample_weights": Draw.SAMPLE_WEIGHTS_ANSWER,
    "selection": Draw.SELECTION_ANSWER,
    "bank": Draw.BANK_ANSWER,
    "session_start": Draw.SESSION_START_ANSWER,
}


# --- the server part ---


class ServerSurveys(RoundExtension):
    """Sends the surveys of the sample weights and of the selection before the cohort is chosen."""

    def start_round(self, ctx: RoundContext) -> None:
        survey_and_remember(ctx, "sample_weights", ctx.recipe.sample_weights)
        survey_and_remember(ctx, "selection", ctx.recipe.selection)


def survey_and_remember(ctx: RoundContext, stage: SurveyStage, policy: object) -> None:
    """Survey clients for a policy; put their newest responses into `Roster.known`."""
    if not isinstance(policy, Surveys):
        return
    clients, responses = send_survey(ctx, stage, policy)
    known = dict(ctx.roster.known)
    for name, values in responses.items():
        known[name] = _remember(known.get(name), clients, values, ctx.roster.num_clients)
    ctx.roster = replace(ctx.roster, known=known, surveyed=clients)


def send_survey(
    ctx: RoundContext,
    stage: SurveyStage,
    policy: object,
    models: Floats32 | None = None,
    cohort: Ints | None = None,
    more: Ints | None = None,
) -> tuple[Ints, SurveyResponses]:
    """Return the clients that a policy surveys and their responses.

    Both are empty if it surveys no client. `models` (k, P) are sent in place of the bank, and
    `cohort` is shown to the policy in place of the cohort of the round. `more` are further clients
    to survey.
    """
    no_clients, roster = np.empty(0, dtype=np.int64), ctx.roster_for(policy)
    bank = ctx.server.bank if models is None else models
    roster = roster if cohort is None else replace(roster, cohort=cohort)
    if not isinstance(policy, Surveys):
        return no_clients, {}
    clients = policy.choose_surveyed(roster, rng_for(ctx.seed, Draw.SURVEYED, ctx.rnd))
    if len(clients) == 0 and (more is None or len(more) == 0):
        return no_clients, {}
    if more is None and clients is roster.present:
        is_valid = True
    else:
        clients = np.unique(clients) if more is None else np.union1d(clients, more)
        is_valid = bool(np.isin(clients, roster.present).all())
    if not is_valid:
        raise ConfigError(
            f"{type(policy).__name__}.choose_surveyed must return some of the "
            f"{len(roster.present)} clients that are present, got {clients.tolist()}."
        )
    clients = clients.astype(np.int64)
    responses = ctx.federation.survey(clients, stage, bank, ctx.rnd)
    _check_responses(responses, clients, stage, ctx.rnd)
    if policy.sends_models:
        ctx.bytes_down += len(clients) * bank.nbytes
        ctx.sent_bank_to |= set(clients.tolist()) if models is None else set()
    ctx.bytes_up += sum(int((~np.isnan(values)).sum()) * 8 for values in responses.values())
    return clients, responses


def _check_responses(responses: SurveyResponses, clients: Ints, stage: str, rnd: int) -> None:
    """Check responses: one row per client, of finite numbers or of nan for no response."""
    for name, values in responses.items():
        if values.ndim != 2 or len(values) != len(clients):
            raise ShapeMismatch(
                f"the responses {name!r} to the survey of the {stage} have shape {values.shape}, "
                f"expected {len(clients)} rows: one per client."
            )
        if (is_broken := np.isinf(values).any(axis=1)).any():
            raise Diverged(
                f"round {rnd + 1}: the response {name!r} of client {clients[is_broken][0]} to the "
                f"survey of the {stage} {NOT_FINITE}. Try a smaller learning rate "
                f"({format_setting('local.lr')}) or less momentum; the rounds before this one are "
                "kept."
            )


def _remember(table: Floats | None, clients: Ints, values: Floats, num_clients: int) -> Floats:
    """Return (N, E) the newest responses; a client that did not respond keeps its last one."""
    width = values.shape[1]
    if table is None or table.shape != (num_clients, width):
        table = np.full((num_clients, width), np.nan)
    table = table.copy()
    has_responded = ~np.isnan(values).any(axis=1)
    table[clients[has_responded]] = values[has_responded]
    return table


# --- the client part ---


def run_client_survey(
    program: ClientProgram, state: ClientState, request: SurveyRequest, make_probe: MakeProbe
) -> tuple[ClientState, Mapping[str, Floats]]:
    """Return one client's state after a survey, and its response."""
    probes = [make_probe(request.bank[0])] if len(request.bank) else []
    state = catch_up(ClientContext(program, request.client, request.rnd, probes), state)
    policy: Surveys = getattr(program.recipe, request.stage)
    label_counts, response = policy.answer_survey(
        ClientSurveyContext(program, state, request, make_probe)
    )
    if request.stage == "selection" and label_counts is not state.label_counts:
        state = state._replace(label_counts=label_counts)
    return state, response


class ClientSurveyContext:
    """What a policy can read of a client to answer a survey (`core.capabilities.SurveyContext`)."""

    label_counts: Any
    split: Any

    def __init__(
        self,
        program: ClientProgram,
        state: ClientState,
        request: SurveyRequest,
        make_probe: MakeProbe,
    ) -> None:
        self._program, self._state = program, state
        self._request, self._make_probe = request, make_probe
        self.num_classes, self.num_models = program.num_classes, len(request.bank)
        self.lr, self.label_counts, self.split = program.local.lr, state.label_counts, state.split
        self.rnd = request.rnd

    @cached_property
    def rng(self) -> np.random.Generator:
        request = self._request
        draw = SURVEY_DRAWS[request.stage]
        return rng_for(self._program.seed, draw, request.rnd, request.client)

    @cached_property
    def noise(self) -> NoiseGenerator:
        return self._program.noise.choose_generator(self.rng)

    @cached_property
    def held(self) -> Ints:
        return self._state.rows.astype(np.int64)

    @cached_property
    def since(self) -> Ints | None:
        since = self._state.since
        return None if since is None else since.astype(np.int64)

    @property
    def capacity(self) -> int:
        return self._program.stream.capacity(self._request.client)

    @cached_property
    def newest(self) -> Ints:
        return self._program.newest(self._request.client, self._state)

    @property
    def supply(self) -> Supply:
        return self._program.stream.supply(self._request.client)

    def labels(self, rows: Ints) -> Ints:
        return self._program.labels.take(rows)

    def probe_model(self, model: int = 0) -> ModelProbe:
        if self.num_models == 0:
            policy = getattr(self._program.recipe, self._request.stage)
            raise ConfigError(
                f"{type(policy).__name__}.answer_survey probes a model, but the survey sends no "
                "models; set sends_models to true, so that clients receive the bank."
            )
        return self._make_probe(self._request.bank[model])
