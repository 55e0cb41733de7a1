"""What a client keeps of what arrives, in one round of its life; nobody learns from it here."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thalweg.core.capabilities import ModelProbe
from thalweg.core.rng import Draw, rng_for
from thalweg.core.types import Arrival, Floats, Floats32, Ints, LastLayer, MemoryContext, Outlook
from thalweg.federation.checks import check_kept, require_probe
from thalweg.federation.client_state import ClientProgram, ClientState, Received
from thalweg.memory import UploadsFromMemory


def catch_up(
    clients: ClientProgram,
    client: int,
    state: ClientState,
    rnd: int,
    probe: ModelProbe | None = None,
    received: Received | None = None,
) -> ClientState:
    """The client as it is before round `rnd`: if it collects when it is away, with all that came.

    A memory that looks at the model goes through what came in the meantime with the model it has just
    received; until it receives one, that waits.
    """
    if clients.stream.collects_when_absent and (
        clients.memory_with_probe is None or probe is not None
    ):
        while state.lived < rnd:
            away = Ingest(clients, client, state, state.lived, probe, received)
            for _ in range(clients.stream.ticks):
                away.identify_state()
                away.update_memory()
            state = away.finish()
    return state


class Ingest:
    """A memory and what goes with it: when samples came, their labels, and what is expected next.

    Per tick: `meet` what arrives, then `update_memory` some of it; at the end `leave`.
    """

    def __init__(
        self,
        clients: ClientProgram,
        client: int,
        state: ClientState,
        rnd: int,
        probe: ModelProbe | None = None,
        received: Received | None = None,
    ) -> None:
        book = clients.stream.state_table
        self.outlook = clients.recipe.forecast.outlook(
            state.forecast, book.histograms, book.importance
        )  # as the round begins
        self.rows = state.rows.astype(np.int64)  # 32 bits to remember, 64 to compute with
        self.since = state.since
        self.tick = 0  # how many are over
        self._clients, self._client, self._state, self._rnd = clients, client, state, rnd
        self._stream, self.arrivals = clients.stream.emit(state.stream, client, state.lived)
        self._memory, self._forecast, self._label_counts = (
            state.memory,
            state.forecast,
            state.label_counts,
        )
        self._rng = rng_for(clients.seed, Draw.MEMORY, state.lived, client)
        self._probe, self._broadcast = probe, (received or {}).get("memory", {})
        self._met, self._outlook_now = 0, self.outlook
        self._recognised: list[int] = []
        self._first_intake: MemoryContext | None = None
        self._renewed: list[float] = []
        self._last_layer: LastLayer | None = None  # of what is held, after the last tick

    def identify_state(self) -> int:
        """The state that the next arrival is taken for.

        The world's own name for it, unless the oracle tells states apart by itself. A state opened just
        now is expected as its prior says; visits count when the round is over.
        """
        arrival, oracle = self.arrivals[self.tick], self._clients.forecast_with_recognition
        self._met = arrival.state
        if oracle is not None:
            histogram, book = (
                self._clients.histogram(arrival.items),
                self._clients.stream.state_table,
            )
            self._forecast, self._met = oracle.recognise(self._forecast, histogram)
            self._recognised.append(self._met)
            self._outlook_now = self._clients.recipe.forecast.outlook(
                self._forecast, book.histograms, book.importance
            )
        return self._met

    def update_memory(self) -> None:
        """The memory policy says which of the samples that were met stay, and which go."""
        arrival = self.arrivals[self.tick]
        policy = self._clients.recipe.memory
        intake = self._build_context(arrival, self._met, self._outlook_now)
        self._memory, kept = policy.keep(self._memory, intake, self._rng)
        check_kept(kept, intake, policy)
        self.rows = np.concatenate([self.rows, arrival.items]).take(kept)
        self._record_arrivals(arrival.items, kept)
        if intake.last_layer is not None:
            self._last_layer = LastLayer(*(part[kept] for part in intake.last_layer))
        self._first_intake = self._first_intake or intake
        if self._clients.memory_with_renewal is None:
            self._renewed.append(np.count_nonzero(kept >= intake.held) / intake.capacity)
        self.tick += 1

    def upload(self) -> Mapping[str, Floats32]:
        """The memory's messages to its half at the server; once, at the end."""
        memory = self._clients.recipe.memory
        if not isinstance(memory, UploadsFromMemory):
            return {}
        self._memory, words = memory.upload(self._memory)
        return words

    def finish(self) -> ClientState:
        """What the client remembers; the forecast learns of this round's states only now."""
        seen = [arrival.state for arrival in self.arrivals]
        if self._clients.forecast_with_recognition is not None:
            seen = self._recognised
        return self._state._replace(
            lived=self._state.lived + 1,
            rows=self.rows.astype(np.int32),
            stream=self._stream,
            memory=self._memory,
            forecast=self._clients.recipe.forecast.observe(
                self._forecast, np.array(seen, dtype=np.int64)
            ),
            since=self.since,
            label_counts=self._label_counts,
        )

    def renewal(self) -> Floats:
        """(M,) foreseen if the policy can, else what was measured, the same for every state."""
        policy = self._clients.memory_with_renewal
        if policy is not None:
            first = self._first_intake or self._build_context(
                self.arrivals[0], self.arrivals[0].state, self.outlook
            )
            first = first._replace(outlook=self.outlook)  # as the round began
            return np.asarray(policy.predict_renewal(self._state.memory, first), dtype=np.float64)
        return np.full(len(self.outlook.probs), np.mean(self._renewed))

    def signatures(self) -> Floats:
        """(M, E) what the states of the outlook are like, as the round began."""
        oracle, book = self._clients.forecast_with_recognition, self._clients.stream.state_table
        if oracle is None:
            return book.signatures
        return oracle.signatures(self._state.forecast, book.histograms)

    def _build_context(self, arrival: Arrival, state: int, outlook: Outlook) -> MemoryContext:
        labels = self._clients.labels
        return MemoryContext(
            capacity=self._clients.stream.capacity(self._client),
            held=len(self.rows),
            num_new=len(arrival.items),
            state=state,
            held_labels=labels.take(self.rows),
            new_labels=labels.take(arrival.items),
            outlook=outlook,
            last_layer=self._probe_last_layer(arrival.items),
            broadcast=self._broadcast,
        )

    def _probe_last_layer(self, new: Ints) -> LastLayer | None:
        """Held and new samples as the model sees them, for a memory that wants to know.

        The received model stays the same all round: what is held was looked at when it came.
        """
        memory_with_probe = self._clients.memory_with_probe
        if memory_with_probe is None:
            return None
        probe = require_probe(self._probe)
        if memory_with_probe.probed_model == "current" or self._last_layer is None:
            rows = np.concatenate([self.rows, new])
            return probe.last_layer(rows, memory_with_probe.probed_model == "received")
        fresh = probe.last_layer(new, received=True)
        return LastLayer(
            *(np.concatenate(both) for both in zip(self._last_layer, fresh, strict=True))
        )

    def _record_arrivals(self, new: Ints, kept: Ints) -> None:
        """Write down when the kept samples came, and count the labels of the new ones."""
        if self.since is not None:
            came = np.full(len(new), self._rnd, dtype=np.int32)
            self.since = np.concatenate([self.since, came]).take(kept)
        selection_with_counts = self._clients.selection_with_counts
        if selection_with_counts is not None and len(new):
            self._label_counts = selection_with_counts.count_labels(
                self._label_counts, self._clients.labels.take(new)
            )
