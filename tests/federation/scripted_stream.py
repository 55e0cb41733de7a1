"""A stream whose row numbers encode client, round and tick, and policies that record arguments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from contracts.examples import some_outlook
from contracts.model_probes import FakeModelProbe
from thalweg.aggregation import MemorySummary
from thalweg.core.noise import SimulatedNoise
from thalweg.core.types import Arrival, Floats, Ints, MemoryContext, Outlook, SampleAges, Supply
from thalweg.federation import ClientContext, ClientProgram, ClientRound, ClientState, start_round
from thalweg.local import LocalTraining
from thalweg.memory import Fifo
from thalweg.recipes import Recipe
from thalweg.streams import StateTable, Stream

LABELS = np.arange(300_000) % 7


@dataclass(frozen=True, eq=False)
class ScriptedStream:
    """A stream in which every row arrives once and its number encodes client, round and tick.

    Row = 100,000 * client + 10,000 * life + 1,000 * tick + number; life 0 is the beginning, and
    tick t of every round is in state t.
    """

    ticks: int = 3
    start: int = 4
    per_tick: int = 4
    collects_when_absent: bool = False
    holds: int = 4

    @property
    def state_table(self) -> StateTable:
        return StateTable(np.full((3, 3), 1 / 3), np.full(3, 1 / 3))

    def capacity(self, client: int) -> int:
        return self.holds

    def supply(self, client: int) -> Supply:
        return Supply(self.start + 10 * self.ticks * self.per_tick, False, 5.0)

    def true_state_probs(self, client: int) -> Floats:
        return some_outlook().probs

    def begin(self, client: int) -> tuple[int, Arrival]:
        return 0, Arrival(100_000 * client + np.arange(self.start), 0)

    def emit(self, state: int, client: int, stream_round: int) -> tuple[int, list[Arrival]]:
        assert state == stream_round, "the stream continues at its position"
        first = 100_000 * client + 10_000 * (stream_round + 1)
        return state + 1, [
            Arrival(first + 1_000 * tick + np.arange(self.per_tick), tick)
            for tick in range(self.ticks)
        ]


@dataclass(frozen=True)
class FixedForecast:
    """A forecast that always returns the same outlook, of the world's states."""

    uses_true_states: ClassVar[bool] = True

    def init(self, truth: Floats, rng: np.random.Generator) -> None:
        return None

    def outlook(self, state: None, histograms: Floats, importance: Floats) -> Outlook:
        return some_outlook()

    def observe(self, state: None, states_seen: Ints) -> None:
        return None


@dataclass(frozen=True)
class RecordingMemory:
    """A memory policy that keeps the newest samples and records its arguments."""

    uses_forecast: ClassVar[bool] = True
    recorded: list[MemoryContext] = field(default_factory=list)

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(
        self, state: None, intake: MemoryContext, rng: np.random.Generator
    ) -> tuple[None, Ints]:
        self.recorded.append(intake)
        return Fifo().keep(state, intake, rng)


@dataclass(frozen=True)
class RecordingForesightedMemory(RecordingMemory):
    asked: list[MemoryContext] = field(default_factory=list)

    def predict_renewal(self, state: None, intake: MemoryContext) -> Floats:
        self.asked.append(intake)
        return np.full(3, 0.125)


@dataclass(frozen=True)
class ReportsAge:
    """Weights that report the summary of a memory."""

    uses_forecast: ClassVar[bool] = True

    def report(self, summary: MemorySummary) -> dict[str, float]:
        renewal = {f"renewal {m}": float(share) for m, share in enumerate(summary.renewal)}
        return {"expected": float(summary.outlook.probs[0]), "ticks": summary.ticks, **renewal}

    def weigh(self, updates: Any, roster: Any) -> Floats:
        return np.full(len(updates), 1 / len(updates))


@dataclass(frozen=True)
class RecordingSampleWeights:
    """Sample j has weight j + 1 times the assigned number; records its arguments."""

    recorded: list[SampleAges] = field(default_factory=list)

    def weigh(self, holding: SampleAges) -> Floats:
        self.recorded.append(holding)
        return holding.assigned * (1.0 + np.arange(len(holding.ages)))


def clients(
    recipe: Recipe, stream: Stream | None = None, *, capacity: int = 4, seed: int = 0
) -> ClientProgram:
    local = LocalTraining(lr=0.1, batch_size=3, steps=2)
    stream = ScriptedStream() if stream is None else stream
    if isinstance(stream, ScriptedStream):
        stream = replace(stream, holds=capacity)
    return ClientProgram(recipe, stream, LABELS, local, seed, noise=SimulatedNoise())


def recipe(memory: Any, **parts: Any) -> Recipe:
    return Recipe("mine", memory, **parts)


def run_round(client_round: ClientRound, ticks: int = 3) -> list[list[int]]:
    """Run a round and return the rows of all mini-batches."""
    batches = []
    for _ in range(ticks):
        client_round.observe()
        batches += [batch.rows.tolist() for batch in client_round.batches()]
    return batches


def play_rounds(who: ClientProgram, client: int, rounds: list[int]) -> ClientState:
    """Return the state of a client after these rounds."""
    state = who.new_client(client)
    for rnd in rounds:
        client_round = start_round(ClientContext(who, client, rnd, [FakeModelProbe([], [])]), state)
        run_round(client_round, who.stream.ticks)
        state = client_round.finish()
    return state
