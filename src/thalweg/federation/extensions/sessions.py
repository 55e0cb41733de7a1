"""The server when a session begins: what is forgotten, what is rehearsed, with which model it goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thalweg.core.capabilities import TracksSessions
from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats32, Ints, Job, Roster, Session, Updates
from thalweg.federation.base import Federation
from thalweg.federation.extensions.secure_aggregation import masking_bytes
from thalweg.federation.merging import merge
from thalweg.federation.server_halves import (
    build_broadcast,
    bytes_down,
    bytes_up,
)
from thalweg.federation.server_state import ServerState, eval_model, get_served_models
from thalweg.federation.validation import NO_REQUESTS, match_updates, validate_updates
from thalweg.recipes.base import Recipe
from thalweg.recipes.compatibility import iter_server_halves


def is_session_start(roster: Roster, server: ServerState) -> bool:
    """Is this the first round of a session in which somebody is here?"""
    session = roster.session
    return session is not None and session.number != server.session and len(roster.present) > 0


def start_server_session(
    server: ServerState, recipe: Recipe, session: Session, probe_rounds: ProbeRounds
) -> ServerState:
    """The server before the first round of a session.

    What server rules know begins anew, and so do the server's halves of policies that go by sessions.
    """
    bank, session_start = get_served_models(server, recipe).models, server.session_start
    past = bank[0] if server.session >= 0 else bank[0][:0]
    if len(bank) == 1:  # a recipe with more models goes on with those it has
        session_start, model = recipe.session_start.choose_start(
            session_start, bank[0], probe_rounds
        )
        bank = _validate_model(model, bank[0], recipe)[None]
    half_states = {
        stage: part.start_session(server.half_states[stage], past, session.members)
        if isinstance(part, TracksSessions)
        else server.half_states[stage]
        for stage, part in iter_server_halves(recipe)
    }
    return server._replace(
        session=session.number,
        bank=bank,
        rules=[recipe.server.init(bank.shape[1]) for _ in bank],
        session_start=session_start,
        open_requests=NO_REQUESTS,  # what was trained for other clients' model comes too late
        half_states=half_states,
    )


class ProbeRounds:
    """Rounds of the present clients that leave no trace. Mutable: it adds up what they cost."""

    def __init__(self, recipe: Recipe, federation: Federation, roster: Roster, seed: int) -> None:
        self._recipe, self._federation, self._roster, self._seed = recipe, federation, roster, seed
        self.count = self.num_steps = self.bytes_down = self.bytes_up = 0
        self.cohorts: list[Ints] = []  # the clients of each

    def __call__(self, model: Floats32, lr_scale: float = 1.0) -> Floats32:
        """The model after one round, by rules that know nothing yet; the same if nobody has learnt anything."""
        self.count += 1
        recipe, roster = self._recipe, self._roster
        rng = rng_for(self._seed, Draw.PROBE_ROUND, roster.rnd, take=self.count)
        cohort = np.unique(recipe.selection.choose(roster, rng)).astype(np.int64)
        if len(cohort) == 0:
            return model
        self.cohorts.append(cohort)
        half_states = {
            stage: part.init_server(roster.num_clients, len(model))
            for stage, part in iter_server_halves(recipe)
        }
        broadcast = build_broadcast(half_states, recipe, roster, cohort, len(model))
        number = 0 if roster.session is None else roster.session.number
        jobs = [
            Job(client, 0, lr_scale, number, probe_round=self.count) for client in cohort.tolist()
        ]
        updates = match_updates(
            self._federation.train(jobs, model[None], roster.rnd, broadcast), jobs, roster.rnd
        )
        validate_updates(updates, roster.rnd, num_params=len(model))
        self._count(replace(updates, bytes_down=bytes_down(model[None], jobs, broadcast, set())))
        received = updates.only(updates.num_steps > 0)
        if len(received) == 0:
            return model
        fresh = recipe.server.init(len(model))
        weights = recipe.weights.weigh(received, roster)
        merged = merge(recipe, fresh, model, received.deltas, weights)
        return eval_model(recipe, merged.rule, merged.model)

    @property
    def extra_metrics(self) -> dict[str, int]:
        """What they cost, for the metrics; nothing if there were none."""
        if self.count == 0:
            return {}
        return {"probe_rounds": self.count, "probe_round_steps": self.num_steps}

    def _count(self, updates: Updates) -> None:
        self.num_steps += int(updates.num_steps.sum())
        down, up = masking_bytes(self._recipe, len(self.cohorts[-1]), updates.deltas.shape[1])
        self.bytes_down += updates.bytes_down + down
        self.bytes_up += bytes_up(updates) + up


def _validate_model(model: Floats32, last: Floats32, recipe: Recipe) -> Floats32:
    """An opening of the user's own may be wrong."""
    model = np.asarray(model)
    if model.shape != last.shape or not np.isfinite(model).all():
        raise ConfigError(
            f"{type(recipe.session_start).__name__}.open must return a model of {len(last)} finite numbers, got "
            f"shape {model.shape}."
        )
    return model.astype(np.float32, copy=False)
