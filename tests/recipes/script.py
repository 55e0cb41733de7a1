"""A stream that tells where and when every row arrived, and policies that note what they are shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from contracts.examples import some_outlook
from contracts.looks import FakeLook
from thalweg.aggregation import Age
from thalweg.core.types import Arrival, Floats, Holding, Intake, Ints, Outlook, Supply
from thalweg.local import Sgd
from thalweg.memory import Fifo
from thalweg.recipes import Recipe
from thalweg.recipes.client import Clients, ClientState
from thalweg.recipes.visit import ClientRound, enter
from thalweg.streams import StateBook, Stream

LABELS = np.arange(300_000) % 7


@dataclass(frozen=True, eq=False)
class Script:
    """A stream in which every row arrives once and its number tells where and when.

    Row = 100,000 * client + 10,000 * life + 1,000 * tick + number; life 0 is the beginning, and
    tick t of every round is in state t.
    """

    ticks: int = 3
    start: int = 4
    per_tick: int = 4
    collects_when_absent: bool = False
    holds: int = 4

    @property
    def book(self) -> StateBook:
        return StateBook(np.full((3, 3), 1 / 3), np.full(3, 1 / 3))

    def capacity(self, client: int) -> int:
        return self.holds

    def supply(self, client: int) -> Supply:
        return Supply(self.start + 10 * self.ticks * self.per_tick, False, 5.0)

    def truth(self, client: int) -> Floats:
        return some_outlook().probs

    def begin(self, client: int) -> tuple[int, Arrival]:
        return 0, Arrival(100_000 * client + np.arange(self.start), 0)

    def emit(self, state: int, client: int, lived: int) -> tuple[int, list[Arrival]]:
        assert state == lived, "the stream goes on where it was"
        first = 100_000 * client + 10_000 * (lived + 1)
        return state + 1, [
            Arrival(first + 1_000 * tick + np.arange(self.per_tick), tick)
            for tick in range(self.ticks)
        ]


@dataclass(frozen=True)
class Expects:
    """A forecast that always says the same."""

    def init(self, truth: Floats, rng: np.random.Generator) -> None:
        return None

    def outlook(self, state: None, histograms: Floats, importance: Floats) -> Outlook:
        return some_outlook()

    def observe(self, state: None, states_seen: Ints) -> None:
        return None


@dataclass(frozen=True)
class Diary:
    """A memory policy without foresight that keeps the newest and notes what it was shown."""

    shown: list[Intake] = field(default_factory=list)

    def init(self, capacity: int, held: int) -> None:
        return None

    def keep(self, state: None, intake: Intake, rng: np.random.Generator) -> tuple[None, Ints]:
        self.shown.append(intake)
        return Fifo().keep(state, intake, rng)


@dataclass(frozen=True)
class ForesightedDiary(Diary):
    asked: list[Intake] = field(default_factory=list)

    def renewal(self, state: None, intake: Intake) -> Floats:
        self.asked.append(intake)
        return np.full(3, 0.125)


@dataclass(frozen=True)
class ReportsAge:
    """Weights that report what they are told of a memory."""

    def report(self, age: Age) -> dict[str, float]:
        renewal = {f"renewal {m}": float(share) for m, share in enumerate(age.renewal)}
        return {"expected": float(age.outlook.probs[0]), "ticks": age.ticks, **renewal}

    def weigh(self, updates: Any, roster: Any) -> Floats:
        return np.full(len(updates), 1 / len(updates))


@dataclass(frozen=True)
class Emphatic:
    """Sample number j counts j + 1, times what was assigned; notes what it was shown."""

    shown: list[Holding] = field(default_factory=list)

    def weigh(self, holding: Holding) -> Floats:
        self.shown.append(holding)
        return holding.assigned * (1.0 + np.arange(len(holding.stays)))


def clients(
    recipe: Recipe, stream: Stream | None = None, *, capacity: int = 4, seed: int = 0
) -> Clients:
    sgd = Sgd(lr=0.1, batch_size=3, steps=2)
    stream = Script() if stream is None else stream
    if isinstance(stream, Script):
        stream = replace(stream, holds=capacity)
    return Clients(recipe, stream, LABELS, sgd, seed)


def recipe(memory: Any, **parts: Any) -> Recipe:
    return Recipe("mine", memory, **parts)


def live(visit: ClientRound, ticks: int = 3) -> list[list[int]]:
    """Walk through a round; the rows of all mini-batches."""
    batches = []
    for _ in range(ticks):
        visit.observe()
        batches += [batch.rows.tolist() for batch in visit.batches()]
    return batches


def played(who: Clients, client: int, rounds: list[int]) -> ClientState:
    """A client that takes part in these rounds."""
    state = who.newborn(client)
    for rnd in rounds:
        visit = enter(who, client, state, rnd, [FakeLook([], [])])
        live(visit, who.stream.ticks)
        state = visit.leave()
    return state
