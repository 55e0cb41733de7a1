"""How one client turns its memory into weighted mini-batches for one model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Floats, Floats32, Ints
from thalweg.federation.client_state import ClientState, Rows
from thalweg.federation.context import ClientContext
from thalweg.local import Stopping, TrainingSummary, UploadsFromObjective


class MiniBatch(NamedTuple):
    """The samples of one step."""

    rows: Rows  # (B,) of the data set
    weights: Floats32 | None = None  # (B,) weight of each sample in the loss; none: 1 / B


class BatchBuilder:
    """Builds the mini-batches of one client and model, and keeps the state of the objective.

    Per tick call `start_tick` before samples arrive, then `batches` and `memo`, and `end_tick`
    after the steps. At the end call `finish_round`, then `upload`.

    An objective that is reset per session starts again with the first step of a new session, and
    in every probe round. A probe round draws its own mini-batches.
    """

    def __init__(self, ctx: ClientContext, state: ClientState, slot: int = 0) -> None:
        """`slot` is the position of the model among those that the client trains in this round."""
        self._ctx, self._program, self._slot = ctx, ctx.program, slot
        self._latent = state.latent
        known = (state.objective, *state.other_objectives)
        self.objective = known[slot] if slot < len(known) else self._program.init_objective()
        if self._program.is_reset_per_session and (ctx.probe_round or ctx.session != state.session):
            self.objective = self._program.init_objective()
        self._split: Floats | None = None  # (held,) share of each sample that belongs to this model
        self._is_used: npt.NDArray[np.bool_] | None = None  # (held,) for any model of the client
        self._total: float | None = None  # sum of the sample weights
        self._mass: float | None = None  # the part of it that belongs to this model
        self._held_out_rows = np.empty(0, dtype=np.int64)  # rows held out in this tick
        self._loss_before: float | None = None  # their loss before the steps of this tick
        self._has_stopped = False

    def start_tick(self, latent: int, rows: Ints) -> None:
        """Prepare the objective for the next arrival, which has the given latent state."""
        objective = self._program.objective_with_state
        if objective is not None:
            changed = self._latent not in (-1, latent)
            probe = self._ctx.require_probe(self._slot)
            self.objective = objective.start_tick(self.objective, probe, rows, changed)
        self._latent = latent

    def split_samples(self, split: Floats, is_used: npt.NDArray[np.bool_]) -> None:
        """Set (held,) the share of each sample for this model, and whether any model uses it."""
        self._split, self._is_used = split, is_used

    def batches(self, rows: Ints, since: Rows | None) -> list[MiniBatch]:
        """Return the mini-batches of this tick, drawn from the memory.

        There are none if all samples have weight zero, or if the client has stopped for this
        round.
        """
        weights, split = self._weigh_samples(rows, since), self._split
        if split is not None:
            rows, weights, split = self._drop_unused(rows, weights, split)
        if self._has_stopped or (weights is not None and not weights.any()):
            return []
        if self._program.recipe.stopping is not None:
            held_out = self._hold_out(rows)
            rows = np.delete(rows, held_out)
            weights = None if weights is None else np.delete(weights, held_out)
            split = None if split is None else np.delete(split, held_out)
        local = self._program.local_in(self._ctx.rnd)
        drawn = local.batches(len(rows), self._rng, self._program.smallest_batch)
        return [
            MiniBatch(
                rows.take(positions).astype(np.int32), _split_weights(weights, split, positions)
            )
            for positions in drawn
        ]

    def memo(self, start: Floats32) -> Mapping[str, Floats32]:
        """Return (P,) vectors for the objective: its state and what the server broadcast."""
        received = self._ctx.received.get("objective", {})
        objective = self._program.objective_with_state
        if objective is None:
            return received
        return {**received, **objective.memo(self.objective, start)}

    def end_tick(self, tick: int) -> None:
        """Decide after the steps of a tick whether the client stops training for this round."""
        stopping = self._program.recipe.stopping
        if stopping is not None and self._loss_before is not None:
            self._has_stopped = stopping.should_stop(self._loss_before, self._held_out_loss(), tick)
            self._loss_before = None

    def finish_round(self, summary: TrainingSummary) -> Mapping[str, Floats32]:
        """Update the state of the objective after the last step and return its uploads."""
        objective = self._program.objective_with_finish
        if objective is None:
            return {}
        received = self._ctx.received.get("objective", {})
        self.objective, uploads = objective.finish_round(self.objective, received, summary)
        return uploads

    def upload(self, rows: Ints) -> Mapping[str, Floats32]:
        """Return the objective's values for its server part. Call it once, at the end."""
        objective = self._program.recipe.objective
        if not isinstance(objective, UploadsFromObjective):
            return {}
        return objective.upload(self._ctx.require_probe(self._slot), rows)

    def finish(self, state: ClientState) -> ClientState:
        """Return the state with the objective, the latent state and the session of this round."""
        return state._replace(
            objective=self.objective, latent=self._latent, session=self._ctx.session
        )

    def total_weight(self, num_rows: int) -> float:
        """Return the sum of the sample weights of a memory of `num_rows`, after the last tick."""
        return float(num_rows) if self._total is None else self._total

    def mass(self, num_rows: int) -> float:
        """Return the part of the total weight that belongs to this model."""
        return self.total_weight(num_rows) if self._mass is None else self._mass

    @cached_property
    def _rng(self) -> np.random.Generator:
        ctx = self._ctx
        return rng_for(self._program.seed, Draw.BATCH, ctx.rnd, ctx.client, take=ctx.probe_round)

    def _weigh_samples(self, rows: Ints, since: Rows | None) -> Floats | None:
        """Return (held,) sample weights; none if all samples have the same weight."""
        if since is None or self._program.recipe.sample_weights is None:
            return None
        assigned = self._ctx.received.get("sample_weights", {}).get("assigned")
        weights = self._program.compute_sample_weights(
            rows, since, self._ctx.rnd, 1.0 if assigned is None else float(assigned[0])
        )
        self._total = float(weights.sum())
        return weights

    def _drop_unused(
        self, rows: Ints, weights: Floats | None, split: Floats
    ) -> tuple[Ints, Floats | None, Floats]:
        """Remove the samples that no model of this client uses."""
        used = self._is_used
        assert used is not None  # set together with the split
        rows, split = rows[used], split[used]
        weights = None if weights is None else weights[used]
        self._total = float(len(rows)) if weights is None else float(weights.sum())
        self._mass = float(split.sum()) if weights is None else float(weights @ split)
        bank = self._program.bank_with_split
        if getattr(bank, "separates_samples", False) and self._mass > 0:
            own = split > 0
            rows, split = rows[own], split[own]
            weights = None if weights is None else weights[own]
            split = split / np.average(split, weights=weights)
        return rows, weights, split

    def _hold_out(self, rows: Ints) -> Ints:
        """Return the positions held out in this tick; their loss decides whether to stop."""
        stopping = self._program.recipe.stopping
        assert stopping is not None
        held_out = stopping.hold_out(len(rows))
        check_held_out(held_out, len(rows), stopping)
        self._held_out_rows = rows[held_out]
        self._loss_before = self._held_out_loss()
        return held_out

    def _held_out_loss(self) -> float:
        """Return the mean loss of the held-out samples now."""
        losses = self._ctx.require_probe(self._slot).losses(self._held_out_rows)
        return float(losses.mean()) if len(losses) else 0.0


def check_held_out(held_out: Ints, num_rows: int, stopping: Stopping) -> None:
    """Check what a stopping rule holds out."""
    is_valid = held_out.ndim == 1 and np.isin(held_out, np.arange(num_rows)).all()
    if not is_valid or (np.diff(held_out) <= 0).any():
        raise ConfigError(
            f"{type(stopping).__name__}.hold_out must return different positions in "
            f"[0, {num_rows}), ascending, got {held_out.tolist()}."
        )


def _split_weights(
    weights: Floats | None, split: Floats | None, positions: Ints
) -> Floats32 | None:
    """Return (B,) weights of a mini-batch, times the share of each sample for this model.

    The shares are not renormalised: a model with a small share takes small steps.

    >>> _split_weights(None, np.array([0.5, 0.25, 0.0]), np.array([2, 0])).tolist()
    [0.0, 0.25]
    """
    if split is None:
        return _unbias_weights(weights, positions)
    shares = split.take(positions)
    whole = _unbias_weights(weights, positions)
    return (shares / len(positions) if whole is None else shares * whole).astype(np.float32)


def _unbias_weights(weights: Floats | None, positions: Ints) -> Floats32 | None:
    """Return (B,) weights with which the expected gradient is that of the weighted mean loss.

    >>> _unbias_weights(np.array([1.0, 3.0]), np.array([1])).tolist()
    [1.5]
    """
    if weights is None:
        return None
    scale = len(weights) / (len(positions) * weights.sum()) if weights.any() else 0.0
    return (weights.take(positions) * scale).astype(np.float32)
