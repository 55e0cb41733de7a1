"""The server when a session begins: what is forgotten, what is rehearsed, with which model it goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import Sessional
from thalweg.core.types import Floats32, Ints, Job, Roster, Session, Updates
from thalweg.recipes.base import Recipe
from thalweg.recipes.door import NO_ORDERS, admit, asked_for
from thalweg.recipes.federation import Federation
from thalweg.recipes.merging import merge
from thalweg.recipes.state import ServerState, presented, serve
from thalweg.recipes.sums import masking_bytes
from thalweg.recipes.talks import bytes_down, bytes_up, talking, tell


def begins(roster: Roster, server: ServerState) -> bool:
    """Is this the first round of a session in which somebody is here?"""
    session = roster.session
    return session is not None and session.number != server.session and len(roster.here) > 0


def begin_session(
    server: ServerState, recipe: Recipe, session: Session, rehearsals: Rehearsals
) -> ServerState:
    """The server before the first round of a session.

    What server rules know begins anew, and so do the server's halves of policies that go by sessions.
    """
    bank, opening = serve(server, recipe).models, server.opening
    past = bank[0] if server.session >= 0 else bank[0][:0]
    if len(bank) == 1:  # a recipe with more models goes on with those it has
        opening, model = recipe.opening.open(opening, bank[0], rehearsals)
        bank = _checked(model, bank[0], recipe)[None]
    talks = {
        stage: part.new_session(server.talks[stage], past, session.members)
        if isinstance(part, Sessional)
        else server.talks[stage]
        for stage, part in talking(recipe)
    }
    return server._replace(
        session=session.number,
        bank=bank,
        rules=[recipe.server.init(bank.shape[1]) for _ in bank],
        opening=opening,
        awaited=NO_ORDERS,  # what was trained for other clients' model comes too late
        talks=talks,
    )


class Rehearsals:
    """Rounds of the present clients that leave no trace. Mutable: it adds up what they cost."""

    def __init__(self, recipe: Recipe, federation: Federation, roster: Roster, seed: int) -> None:
        self._recipe, self._federation, self._roster, self._seed = recipe, federation, roster, seed
        self.count = self.num_steps = self.bytes_down = self.bytes_up = 0
        self.asked: list[Ints] = []  # the clients of each

    def __call__(self, model: Floats32, pace: float = 1.0) -> Floats32:
        """The model after one round, by rules that know nothing yet; the same if nobody has learnt anything."""
        self.count += 1
        recipe, roster = self._recipe, self._roster
        rng = rng_for(self._seed, Draw.REHEARSAL, roster.rnd, take=self.count)
        cohort = np.unique(recipe.selection.choose(roster, rng)).astype(np.int64)
        if len(cohort) == 0:
            return model
        self.asked.append(cohort)
        talks = {
            stage: part.begin(roster.num_clients, len(model)) for stage, part in talking(recipe)
        }
        told = tell(talks, recipe, roster, cohort, len(model))
        number = 0 if roster.session is None else roster.session.number
        jobs = [Job(client, 0, pace, number, rehearsal=self.count) for client in cohort.tolist()]
        updates = asked_for(
            self._federation.train(jobs, model[None], roster.rnd, told), jobs, roster.rnd
        )
        admit(updates, roster.rnd, num_params=len(model))
        self._count(replace(updates, bytes_down=bytes_down(model[None], jobs, told, set())))
        heard = updates.only(updates.num_steps > 0)
        if len(heard) == 0:
            return model
        fresh = recipe.server.init(len(model))
        weights = recipe.weights.weigh(heard, roster)
        merged = merge(recipe, fresh, model, heard.deltas, weights)
        return presented(recipe, merged.rule, merged.model)

    @property
    def remarks(self) -> dict[str, int]:
        """What they cost, for the metrics; nothing if there were none."""
        if self.count == 0:
            return {}
        return {"rehearsals": self.count, "rehearsal_steps": self.num_steps}

    def _count(self, updates: Updates) -> None:
        self.num_steps += int(updates.num_steps.sum())
        down, up = masking_bytes(self._recipe, len(self.asked[-1]), updates.deltas.shape[1])
        self.bytes_down += updates.bytes_down + down
        self.bytes_up += bytes_up(updates) + up


def _checked(model: Floats32, last: Floats32, recipe: Recipe) -> Floats32:
    """An opening of the user's own may be wrong."""
    model = np.asarray(model)
    if model.shape != last.shape or not np.isfinite(model).all():
        raise ConfigError(
            f"{type(recipe.opening).__name__}.open must return a model of {len(last)} finite numbers, got "
            f"shape {model.shape}."
        )
    return model.astype(np.float32, copy=False)
