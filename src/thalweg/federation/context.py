"""The state of one round, on the server (`RoundContext`) and on one client (`ClientContext`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from thalweg.bank import BankAssignment
from thalweg.core.capabilities import Broadcast, ModelProbe
from thalweg.core.types import (
    Floats32,
    Ints,
    Job,
    OracleRoster,
    Roster,
    Session,
    Updates,
)
from thalweg.federation.base import Federation, KnowsConcepts
from thalweg.federation.client_state import ClientProgram, Received
from thalweg.federation.extensions.staleness import NO_REQUESTS
from thalweg.federation.messages import TrainRequest
from thalweg.federation.server_state import ServerState
from thalweg.recipes.base import Recipe

DrawModel = Callable[
    [int], Floats32
]  # returns the parameters (P,) of the n-th random model of a run


@dataclass(eq=False)
class RoundContext:
    """Everything that belongs to one round on the server.

    The steps of the round and its extensions read and change it in turn. Fields of later steps
    have their default value until the step has run.
    """

    rnd: int
    seed: int
    recipe: Recipe
    federation: Federation
    server: ServerState  # the state before the round; steps replace it by the state after them
    roster: Roster
    session: Session
    draw_model: DrawModel | None = None
    cohort: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    assignment: BankAssignment | None = None  # which clients of the cohort train which models
    jobs: list[Job] = field(default_factory=list)
    broadcast: Broadcast = field(default_factory=dict)  # a row per job
    open_requests: Ints = field(default_factory=lambda: NO_REQUESTS)
    """(n, 2) requests of earlier rounds whose updates are accepted now."""
    updates: Updates | None = None  # the accepted updates
    alarmed: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The clients whose alarm was raised in this round, ascending."""
    extra_metrics: dict[str, Any] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0  # without the updates themselves
    sent_bank_to: set[int] = field(default_factory=set)  # clients that received all models already
    probe_cohorts: list[Ints] = field(default_factory=list)  # the cohort of each probe round

    def roster_for(self, policy: object) -> Roster:
        """Return the roster that a policy may see: with true concepts only if it is an oracle."""
        if not getattr(policy, "is_oracle", False):
            return self.roster
        federation: object = self.federation
        concepts = None
        if isinstance(federation, KnowsConcepts):
            concepts = federation.true_concepts(self.rnd)
        return OracleRoster(**vars(self.roster), concepts=concepts)


def start_context(
    server: ServerState,
    federation: Federation,
    recipe: Recipe,
    seed: int,
    draw_model: DrawModel | None = None,
) -> RoundContext:
    """Return the context of the server's next round."""
    rnd = server.rnd
    roster = replace(federation.roster(rnd), times_present=server.times_present, known=server.known)
    session = roster.session or Session(0, rnd, roster.present)
    return RoundContext(rnd, seed, recipe, federation, server, roster, session, draw_model)


@dataclass(frozen=True, eq=False)
class ClientContext:
    """Input of one client for one round, besides its own state."""

    program: ClientProgram
    client: int
    rnd: int
    probes: Sequence[ModelProbe] = ()  # of the models it trains; empty if the recipe needs none
    received: Received = field(default_factory=dict)  # broadcast values, by stage and name
    session: int = 0
    probe_round: int = 0  # 0: an ordinary round; else the number of a probe round
    models: Sequence[int] = (0,)  # which models of the bank it trains, ascending

    @classmethod
    def from_request(
        cls, program: ClientProgram, request: TrainRequest, probes: Sequence[ModelProbe] = ()
    ) -> ClientContext:
        """Return the context of the round that a client is asked to take part in."""
        return cls(
            program=program,
            client=request.client,
            rnd=request.rnd,
            probes=probes,
            received=request.broadcast,
            session=request.session,
            probe_round=request.probe_round,
            models=request.models.tolist(),
        )

    @property
    def probe(self) -> ModelProbe | None:
        """The probe of the first model, if there is one."""
        return self.probes[0] if self.probes else None

    def require_probe(self, slot: int = 0) -> ModelProbe:
        """Return the probe of one of the client's models."""
        assert self.probes, "this recipe needs a model probe (ClientProgram.needs_probe)"
        return self.probes[slot]
