"""How one client updates its memory when samples arrive, without training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from thalweg.core.errors import ConfigError
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Arrival, Floats, Floats32, Ints, LastLayer, MemoryContext, Outlook
from thalweg.federation.client_state import ClientState
from thalweg.federation.context import ClientContext
from thalweg.federation.serving import record_last
from thalweg.memory import UploadsFromMemory


def catch_up(ctx: ClientContext, state: ClientState) -> ClientState:
    """Return the client's state before the round, with the samples it collected while absent.

    A memory that probes the model processes these samples with the model that the client has just
    received. Until it receives a model, they stay in the stream.
    """
    program = ctx.program
    if program.stream.collects_when_absent and (
        program.memory_with_probe is None or ctx.probe is not None
    ):
        while state.stream_round < ctx.rnd:
            ingest = Ingest(replace(ctx, rnd=state.stream_round), state)
            for _ in range(program.stream.ticks):
                ingest.identify_state()
                ingest.update_memory()
            state = ingest.finish()
    return state


class Ingest:
    """The arrivals of one client in one round, and the memory that they change.

    Per tick call `identify_state`, then `update_memory`; at the end `finish`.
    """

    def __init__(self, ctx: ClientContext, state: ClientState) -> None:
        program = ctx.program
        self.outlook = program.make_outlook(state.forecast)  # at the start of the round
        self.rows = state.rows.astype(np.int64)  # stored as 32 bits, used as 64
        self.since = state.since
        self.tick = 0  # ticks that are over
        self._ctx, self._program, self._state = ctx, program, state
        self._stream, self.arrivals = program.stream.emit(
            state.stream, ctx.client, state.stream_round
        )
        self._memory, self._forecast, self._label_counts = (
            state.memory,
            state.forecast,
            state.label_counts,
        )
        self._rng = rng_for(program.seed, Draw.MEMORY, state.stream_round, ctx.client)
        self._latent, self._outlook_now = 0, self.outlook
        self._recognised: list[int] = []
        self._first_context: MemoryContext | None = None
        self._renewed: list[float] = []
        self._last_layer: LastLayer | None = None  # of the held samples, after the last tick

    def identify_state(self) -> int:
        """Return the latent state of the next arrival for the objective; -1: not available to it.

        If the forecast recognises states, this is its own state. A state that it has just opened
        has its prior probability; it counts the states of a round when the round is over. Otherwise
        it is the world's state, for objectives that declare ``uses_true_states``.
        """
        arrival, forecast = self.arrivals[self.tick], self._program.forecast_with_recognition
        if forecast is None:
            self._latent = self._true_state_for_memory(arrival)
            return arrival.state if self._program.objective_sees_true_states else -1
        self._forecast, self._latent = forecast.recognise(
            self._forecast, self._program.histogram(arrival.items)
        )
        self._recognised.append(self._latent)
        self._outlook_now = self._program.make_outlook(self._forecast)
        return self._latent

    def update_memory(self) -> None:
        """Let the memory policy decide which held and arriving samples to keep."""
        arrival = self.arrivals[self.tick]
        policy = self._program.recipe.memory
        context = self._build_context(arrival, self._latent, self._outlook_now)
        self._memory, kept = policy.keep(self._memory, context, self._rng)
        check_kept(kept, context, policy)
        self.rows = np.concatenate([self.rows, arrival.items]).take(kept)
        self._record_arrivals(arrival.items, kept)
        if context.last_layer is not None:
            self._last_layer = LastLayer(*(part[kept] for part in context.last_layer))
        self._first_context = self._first_context or context
        if self._program.memory_with_renewal is None:
            self._renewed.append(np.count_nonzero(kept >= context.held) / context.capacity)
        self.tick += 1

    def upload(self) -> Mapping[str, Floats32]:
        """Return the memory's values for its server part. Call it once, at the end."""
        memory = self._program.recipe.memory
        if not isinstance(memory, UploadsFromMemory):
            return {}
        self._memory, values = memory.upload(self._memory)
        return values

    def finish(self) -> ClientState:
        """Return the new state; only now does the forecast observe the states of this round."""
        seen = self._recognised
        if self._program.forecast_with_recognition is None:
            is_told = self._program.forecast_sees_true_states
            seen = [arrival.state if is_told else -1 for arrival in self.arrivals]
        serving = self._state.serving
        if serving is not None:
            lasts = [arrival.items[-1:] for arrival in self.arrivals if len(arrival.items)]
            if lasts:
                serving = record_last(serving, self._program.targets(lasts[-1]))
        return self._state._replace(
            stream_round=self._state.stream_round + 1,
            rows=self.rows.astype(np.int32),
            stream=self._stream,
            memory=self._memory,
            forecast=self._program.forecast.observe(self._forecast, np.array(seen, dtype=np.int64)),
            since=self.since,
            label_counts=self._label_counts,
            serving=serving,
            num_arrived=self.num_arrived,
        )

    def renewal(self) -> Floats:
        """Return (M,) the renewed share of memory: predicted per state, or else measured."""
        policy = self._program.memory_with_renewal
        if policy is not None:
            first = self._first_context or self._build_context(
                self.arrivals[0], self._true_state_for_memory(self.arrivals[0]), self.outlook
            )
            # The outlook at the start of the round.
            outlook = self._program.hide_outlook(self.outlook, self._program.recipe.memory)
            first = first._replace(outlook=outlook)
            return np.asarray(policy.predict_renewal(self._state.memory, first), dtype=np.float64)
        mean = np.add.reduce(self._renewed) / len(self._renewed)
        return np.full(len(self.outlook.probs), mean)

    @property
    def num_arrived(self) -> int:
        """Samples that have arrived so far, those of this round included."""
        return self._state.num_arrived + sum(len(arrival.items) for arrival in self.arrivals)

    def signatures(self) -> Floats:
        """Return (M, E) the signatures of the outlook's states, at the start of the round."""
        forecast, table = self._program.forecast_with_recognition, self._program.stream.state_table
        if forecast is None:
            return table.signatures
        return forecast.signatures(self._state.forecast, table.histograms)

    def _true_state_for_memory(self, arrival: Arrival) -> int:
        return arrival.state if self._program.memory_sees_true_states else -1

    def _build_context(self, arrival: Arrival, latent: int, outlook: Outlook) -> MemoryContext:
        labels, targets = self._program.labels, self._program.targets_for_memory
        return MemoryContext(
            capacity=self._program.stream.capacity(self._ctx.client),
            held=len(self.rows),
            num_new=len(arrival.items),
            state=latent,
            held_labels=labels.take(self.rows),
            new_labels=labels.take(arrival.items),
            outlook=self._program.hide_outlook(outlook, self._program.recipe.memory),
            last_layer=self._probe_last_layer(arrival.items),
            broadcast=self._ctx.received.get("memory", {}),
            held_targets=None if targets is None else targets.take(self.rows, axis=0),
            new_targets=None if targets is None else targets.take(arrival.items, axis=0),
        )

    def _probe_last_layer(self, new: Ints) -> LastLayer | None:
        """Return the last layer's view of held and new samples, if the memory needs it.

        The received model does not change during the round, so held samples are probed only once.
        """
        memory_with_probe = self._program.memory_with_probe
        if memory_with_probe is None:
            return None
        probe = self._ctx.require_probe()
        if memory_with_probe.probed_model == "current" or self._last_layer is None:
            rows = np.concatenate([self.rows, new])
            return probe.last_layer(rows, memory_with_probe.probed_model == "received")
        fresh = probe.last_layer(new, received=True)
        return LastLayer(
            *(np.concatenate(both) for both in zip(self._last_layer, fresh, strict=True))
        )

    def _record_arrivals(self, new: Ints, kept: Ints) -> None:
        """Store the arrival round of the kept samples, and count the labels of the new ones."""
        if self.since is not None:
            arrived_in = np.full(len(new), self._ctx.rnd, dtype=np.int32)
            self.since = np.concatenate([self.since, arrived_in]).take(kept)
        selection_with_counts = self._program.selection_with_counts
        if selection_with_counts is not None and len(new):
            self._label_counts = selection_with_counts.count_labels(
                self._label_counts, self._program.labels.take(new)
            )


def check_kept(kept: Ints, context: MemoryContext, policy: object) -> None:
    """Check what a memory policy returns: different positions, at most `capacity` of them."""
    total = context.held + context.num_new
    try:
        uses = np.bincount(kept, minlength=total)  # raises for negative positions and fractions
        is_valid = len(kept) <= context.capacity and len(uses) == total
        is_valid = is_valid and uses.max(initial=0) <= 1
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise ConfigError(
            f"{type(policy).__name__}.keep must return at most {context.capacity} different "
            f"positions in [0, {total}), got {len(kept)} from {np.min(kept)} to {np.max(kept)}, "
            f"{len(np.unique(kept))} of them different."
        )
