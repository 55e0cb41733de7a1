"""What a client learns from, in one round: mini-batches of what it holds, and what its objective knows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.capabilities import ModelProbe
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.federation.checks import check_held_out, require_probe
from thalweg.federation.client_state import ClientProgram, ClientState, Received, Rows
from thalweg.local import TrainingSummary, UploadsFromObjective


class MiniBatch(NamedTuple):
    """What one step learns from."""

    rows: Rows  # (B,) of the data set
    weights: Floats32 | None = None  # (B,) what each counts; none: 1 / B


class BatchBuilder:
    """A client's samples on their way to the steps. The steps themselves are an engine's.

    Per tick: `turn` before samples arrive, `batches`, `memo`, and `pause` when the steps are done. At the end
    `finish_round`, then `say`.

    An objective that goes by sessions knows nothing at the first step of another session, nor in a rehearsal, which
    has mini-batches of its own.
    """

    def __init__(
        self,
        clients: ClientProgram,
        client: int,
        state: ClientState,
        rnd: int,
        probe: ModelProbe | None = None,
        received: Received | None = None,
        session: int = 0,
        probe_round: int = 0,
        slot: int = 0,
    ) -> None:
        """`slot` is that of the model among those which the client trains in this round."""
        self._clients, self._client, self._rnd = clients, client, rnd
        self._session, self._rehearsal = session, probe_round
        self._probe, self._received = probe, received or {}
        self._latent = state.latent
        known = (state.objective, *state.other_objectives)
        self.objective = known[slot] if slot < len(known) else clients.init_objective()
        if clients.is_reset_per_session and (probe_round or session != state.session):
            self.objective = clients.init_objective()
        self._counts: Floats | None = None  # (held,) what each sample counts for this model
        self._is_used: npt.NDArray[np.bool_] | None = None  # (held,) for any of the client's models
        self._total: float | None = None  # of the samples' weights
        self._mass: float | None = None
        self._held_out_rows = np.empty(0, dtype=np.int64)  # rows held out in this tick
        self._loss_before: float | None = None  # theirs, before its steps
        self._has_settled = False

    def start_tick(self, latent: int, rows: Ints) -> None:
        """Tell the objective that the next samples come, and whether their state is another one."""
        objective_with_state = self._clients.objective_with_state
        if objective_with_state is not None:
            changed = self._latent not in (-1, latent)
            probe = require_probe(self._probe)
            self.objective = objective_with_state.start_tick(self.objective, probe, rows, changed)
        self._latent = latent

    def split_samples(self, counts: Floats, is_used: npt.NDArray[np.bool_]) -> None:
        """(held,) what each sample counts for this model, and whether it counts for any model of the client's."""
        self._counts, self._is_used = counts, is_used

    def batches(self, rows: Ints, since: Rows | None) -> list[MiniBatch]:
        """The mini-batches of this tick, drawn from what is now in memory.

        None if the samples count nothing, or if the client has learnt enough for this round.
        """
        weights, counts = self._weigh_samples(rows, since), self._counts
        if counts is not None:
            rows, weights, counts = self._drop_unused(rows, weights, counts)
        if self._has_settled or (weights is not None and not weights.any()):
            return []
        if self._clients.recipe.stopping is not None:
            aside = self._hold_out(rows)
            rows = np.delete(rows, aside)
            weights = None if weights is None else np.delete(weights, aside)
            counts = None if counts is None else np.delete(counts, aside)
        drawn = self._clients.local.batches(len(rows), self._rng)
        return [
            MiniBatch(rows.take(places).astype(np.int32), _split_weights(weights, counts, places))
            for places in drawn
        ]

    def memo(self, start: Floats32) -> Mapping[str, Floats32]:
        """(P,) vectors for the objective: what it remembers here and what the server told it."""
        received = self._received.get("objective", {})
        objective_with_state = self._clients.objective_with_state
        if objective_with_state is None:
            return received
        return {**received, **objective_with_state.memo(self.objective, start)}

    def end_tick(self, tick: int) -> None:
        """The steps of this tick are done: was it worth while?"""
        stopping = self._clients.recipe.stopping
        if stopping is not None and self._loss_before is not None:
            self._has_settled = stopping.should_stop(self._loss_before, self._held_out_loss(), tick)
            self._loss_before = None

    def finish_round(self, summary: TrainingSummary) -> Mapping[str, Floats32]:
        """The round is over: what the objective makes of it, and has to say about it."""
        objective_with_conclude = self._clients.objective_with_conclude
        if objective_with_conclude is None:
            return {}
        received = self._received.get("objective", {})
        self.objective, uploads = objective_with_conclude.finish_round(
            self.objective, received, summary
        )
        return uploads

    def upload(self, rows: Ints) -> Mapping[str, Floats32]:
        """The objective's messages to its half at the server; once, at the end."""
        objective = self._clients.recipe.objective
        if not isinstance(objective, UploadsFromObjective):
            return {}
        return objective.upload(require_probe(self._probe), rows)

    def finish(self, state: ClientState) -> ClientState:
        """The client with what it remembers of learning."""
        return state._replace(objective=self.objective, latent=self._latent, session=self._session)

    def total_weight(self, num_rows: int) -> float:
        """What a memory of so many samples counts as a whole, after the last tick."""
        return float(num_rows) if self._total is None else self._total

    def mass(self, num_rows: int) -> float:
        """The part of it that counts for this model."""
        return self.total_weight(num_rows) if self._mass is None else self._mass

    @cached_property
    def _rng(self) -> np.random.Generator:
        """Made when it is needed: who does not train draws no batches."""
        return rng_for(
            self._clients.seed, Draw.BATCH, self._rnd, self._client, take=self._rehearsal
        )

    def _weigh_samples(self, rows: Ints, since: Rows | None) -> Floats | None:
        """(held,) how much each sample counts now; none: all the same."""
        if since is None or self._clients.recipe.sample_weights is None:
            return None
        assigned = self._received.get("sample_weights", {}).get("assigned")
        weights = self._clients.compute_sample_weights(
            rows, since, self._rnd, 1.0 if assigned is None else float(assigned[0])
        )
        self._total = float(weights.sum())
        return weights

    def _drop_unused(
        self, rows: Ints, weights: Floats | None, counts: Floats
    ) -> tuple[Ints, Floats | None, Floats]:
        """Without the samples that count for no model of this client's."""
        used = self._is_used
        assert used is not None  # comes with the counts
        rows, counts = rows[used], counts[used]
        weights = None if weights is None else weights[used]
        self._total = float(len(rows)) if weights is None else float(weights.sum())
        self._mass = float(counts.sum()) if weights is None else float(weights @ counts)
        return rows, weights, counts

    def _hold_out(self, rows: Ints) -> Ints:
        """Positions that are not learnt from in this tick, but tried before and after its steps."""
        stopping = self._clients.recipe.stopping
        assert stopping is not None
        aside = stopping.hold_out(len(rows))
        check_held_out(aside, len(rows), stopping)
        self._held_out_rows = rows[aside]
        self._loss_before = self._held_out_loss()
        return aside

    def _held_out_loss(self) -> float:
        """Mean loss of the held-out samples now."""
        losses = require_probe(self._probe).losses(self._held_out_rows)
        return float(losses.mean()) if len(losses) else 0.0


def _split_weights(weights: Floats | None, counts: Floats | None, places: Ints) -> Floats32 | None:
    """(B,) the same, of which only a part counts for this model: not scaled up, so that little is learnt of little.

    >>> _split_weights(None, np.array([0.5, 0.25, 0.0]), np.array([2, 0])).tolist()
    [0.0, 0.25]
    """
    if counts is None:
        return _unbias_weights(weights, places)
    parts = counts.take(places)
    whole = _unbias_weights(weights, places)
    return (parts / len(places) if whole is None else parts * whole).astype(np.float32)


def _unbias_weights(weights: Floats | None, places: Ints) -> Floats32 | None:
    """(B,) weights of a mini-batch whose gradient is that of the weighted mean, on average."""
    if weights is None:
        return None
    scale = len(weights) / (len(places) * weights.sum()) if weights.any() else 0.0
    return (weights.take(places) * scale).astype(np.float32)
