"""The client's half of a round: samples arrive, some are kept, batches are drawn from them.

Every engine walks through the same object, so what a client does cannot depend on where it does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.aggregation import Age
from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import Look
from thalweg.core.types import Arrival, Floats, Floats32, Glance, Holding, Intake, Ints, Outlook
from thalweg.local import SaysFromObjective, Sgd
from thalweg.memory import SaysFromMemory
from thalweg.recipes.abilities import Abilities
from thalweg.recipes.base import Recipe
from thalweg.recipes.checks import check_held_out, check_kept, check_weights
from thalweg.streams import World

Rows = npt.NDArray[np.int32]
Heard = Mapping[str, Mapping[str, Floats32]]  # stage -> name -> what the server told one client


class MiniBatch(NamedTuple):
    """What one step learns from."""

    rows: Rows  # (B,) of the data set
    weights: Floats32 | None = None  # (B,) what each counts; none: 1 / B


class ClientState(NamedTuple):
    """All that a client remembers between rounds: rows it holds, and a few numbers."""

    lived: int  # rounds its stream has moved
    rows: Rows  # (held,) rows of the data set, in the order the memory policy gave them
    stream: Any
    memory: Any
    forecast: Any
    objective: Any = None
    latent: int = -1  # the latent state the client last trained in; -1: never
    since: Rows | None = (
        None  # (held,) the round in which each row came; none: nobody wants to know
    )
    tally: Any = None  # what the selection keeps here


@dataclass(frozen=True, eq=False)
class Clients(Abilities):
    """A recipe in a world: what any client of it does."""

    recipe: Recipe
    world: World
    labels: Ints  # labels of the data set's training part
    local: Sgd
    seed: int
    num_params: int = 0  # of the net; for objectives that remember vectors of that size

    @property
    def num_classes(self) -> int:
        return int(self.world.book.histograms.shape[1])

    def histogram(self, rows: Ints | Rows) -> Ints:
        """(C,) how many of these rows belong to each class."""
        return np.bincount(self.labels.take(rows), minlength=self.num_classes)

    def sample_weights(
        self, rows: Ints, since: Rows | None, rnd: int, assigned: float = 1.0
    ) -> Floats:
        """(held,) how much each held sample counts in a round, as the emphasis says."""
        emphasis = self.recipe.emphasis
        if emphasis is None or since is None:
            return np.ones(len(rows))
        stays = rnd - since.astype(np.int64) + 1
        weights = emphasis.weigh(Holding(stays, self.labels.take(rows), assigned))
        check_weights(weights, len(rows), emphasis)
        return weights

    def newborn(self, client: int) -> ClientState:
        """A client before its first round. Nobody is born before taking part for the first time."""
        stream, arrival = self.world.begin(client)
        capacity = self.world.capacity(client)
        rows = arrival.items[:capacity].astype(np.int32)
        forecast = self.recipe.forecast.init(
            self.world.truth(client), rng_for(self.seed, Draw.FORECAST, 0, client)
        )
        if self.recognising is not None:
            forecast, _ = self.recognising.recognise(forecast, self.histogram(rows))
        tally = None
        if self.tallying is not None:
            tally = self.tallying.begin_tally(self.num_classes)
            tally = self.tallying.count(tally, self.labels.take(arrival.items))
        return ClientState(
            lived=0,
            rows=rows,
            stream=stream,
            memory=self.recipe.memory.init(capacity, len(rows)),
            forecast=forecast,
            objective=self.remembering and self.remembering.init(self.num_params),
            since=None if self.recipe.emphasis is None else np.zeros(len(rows), dtype=np.int32),
            tally=tally,
        )

    def newest(self, client: int, state: ClientState) -> Ints:
        """Rows that arrive first in the client's next round, or what is in memory if none do."""
        _, arrivals = self.world.emit(state.stream, client, state.lived)
        if arrivals and len(arrivals[0].items):
            return arrivals[0].items
        return state.rows.astype(np.int64)

    def enter(
        self,
        client: int,
        state: ClientState,
        rnd: int,
        look: Look | None = None,
        heard: Heard | None = None,
    ) -> ClientRound:
        """The client's part in round `rnd`, after what it collected while it was away."""
        state = self.caught_up(client, state, rnd, look, heard)
        return ClientRound(self, client, state, rnd, look, heard)

    def caught_up(
        self,
        client: int,
        state: ClientState,
        rnd: int,
        look: Look | None = None,
        heard: Heard | None = None,
    ) -> ClientState:
        """The client as it is before round `rnd`: if it collects when it is away, with all that came.

        A memory that looks at the model goes through what came in the meantime with the model it has
        just received; until it receives one, that waits.
        """
        if self.world.collects_when_absent and (self.looking is None or look is not None):
            while state.lived < rnd:
                away = ClientRound(self, client, state, rnd, look, heard, is_away=True)
                for _ in range(self.world.ticks):
                    away.observe()
                state = away.leave()
        return state


class ClientRound:
    """One client in one round.

    Per tick: `observe`, `batches`, train on them with `memo`, `pause`; then `say` and `leave`. Of an
    attentive recipe (`Clients.is_attentive`) the client must be able to look at its model meanwhile.
    """

    def __init__(
        self,
        clients: Clients,
        client: int,
        state: ClientState,
        rnd: int,
        look: Look | None = None,
        heard: Heard | None = None,
        is_away: bool = False,
    ) -> None:
        recipe, world = clients.recipe, clients.world
        book = world.book
        self.client = client
        self.outlook = recipe.forecast.outlook(state.forecast, book.histograms, book.importance)
        self.rows = state.rows.astype(np.int64)  # 32 bits to remember, 64 to compute with
        self._clients, self._state, self._memory = clients, state, state.memory
        self._forecast, self._recognised = state.forecast, list[int]()
        self._stream, self.arrivals = world.emit(state.stream, client, state.lived)
        self._tick = 0
        self._first_intake: Intake | None = None
        self._renewed: list[float] = []
        self._memory_rng = rng_for(clients.seed, Draw.MEMORY, state.lived, client)
        self._rnd = rnd
        self._look, self._heard, self._is_away = look, heard or {}, is_away
        self._objective, self._latent = state.objective, state.latent
        self._since, self._tally = state.since, state.tally
        self._total: float | None = None  # of the samples' weights
        self._glance: Glance | None = None  # of what is held, after the last tick
        self._on_trial = self.rows[:0]  # held out in this tick
        self._loss_before: float | None = None  # theirs, before its steps
        self._has_settled = False

    def rows_to_test(self, per_tick: int) -> Ints:
        """Rows that arrive in this round and are predicted before anybody learns from them."""
        arrived = [arrival.items[:per_tick] for arrival in self.arrivals]
        return np.concatenate(arrived) if arrived else np.empty(0, dtype=np.int64)

    def observe(self) -> None:
        """Samples arrive, and the memory policy says which stay."""
        arrival = self.arrivals[self._tick]
        state, outlook = self._place(arrival)
        if not self._is_away:
            self._turn(state)
        policy, intake = self._clients.recipe.memory, self._intake(arrival, state, outlook)
        self._memory, kept = policy.keep(self._memory, intake, self._memory_rng)
        check_kept(kept, intake, policy)
        self.rows = np.concatenate([self.rows, arrival.items]).take(kept)
        self._note(arrival.items, kept)
        if intake.glance is not None:
            self._glance = Glance(*(part[kept] for part in intake.glance))
        self._first_intake = self._first_intake or intake
        if self._clients.foreseeing is None:
            self._renewed.append(np.count_nonzero(kept >= intake.held) / intake.capacity)
        self._tick += 1

    @cached_property
    def _batch_rng(self) -> np.random.Generator:
        """Made when it is needed: who only collects draws no batches."""
        return rng_for(self._clients.seed, Draw.BATCH, self._rnd, self.client)

    def batches(self) -> list[MiniBatch]:
        """The mini-batches of this tick, drawn from what is now in memory.

        None if the samples count nothing: such a client does not train.
        """
        rows, weights = self.rows, self._weights()
        if weights is not None and not weights.any():
            return []
        stopping = self._clients.recipe.stopping
        if stopping is not None:
            if self._has_settled:
                return []
            aside = stopping.held_out(len(rows))
            check_held_out(aside, len(rows), stopping)
            self._on_trial = rows[aside]
            self._loss_before = self._trial()
            rows = np.delete(rows, aside)
            weights = None if weights is None else np.delete(weights, aside)
        drawn = self._clients.local.batches(len(rows), self._batch_rng)
        return [
            MiniBatch(rows.take(places).astype(np.int32), _unbiased(weights, places))
            for places in drawn
        ]

    def memo(self, start: Floats32) -> Mapping[str, Floats32]:
        """(P,) vectors for the objective: what it remembers here and what the server told it."""
        heard = self._heard.get("objective", {})
        remembering = self._clients.remembering
        if remembering is None:
            return heard
        return {**heard, **remembering.memo(self._objective, start)}

    def pause(self) -> None:
        """The steps of this tick are done: was it worth while?"""
        stopping = self._clients.recipe.stopping
        if stopping is not None and self._loss_before is not None:
            self._has_settled = stopping.has_settled(self._loss_before, self._trial(), self._tick)
            self._loss_before = None

    def say(self) -> dict[str, Floats32]:
        """Messages to the server's halves of the policies, by "stage.name"; once, at the end."""
        said: dict[str, Floats32] = {}
        memory, objective = self._clients.recipe.memory, self._clients.recipe.objective
        if isinstance(memory, SaysFromMemory):
            self._memory, words = memory.say(self._memory)
            said |= {f"memory.{name}": vector for name, vector in words.items()}
        if isinstance(objective, SaysFromObjective):
            words = objective.say(self._required_look, self.rows)
            said |= {f"objective.{name}": vector for name, vector in words.items()}
        return said

    def reports(self) -> Mapping[str, float]:
        """The numbers that the recipe's weights want from this client."""
        weights = self._clients.reporting
        if weights is None:
            return {}
        ticks = self._clients.world.ticks
        age = Age(self.outlook, self._renewal(), ticks, self._embeddings(), self._total_weight())
        return dict(weights.report(age))

    def leave(self) -> ClientState:
        """What the client remembers; the forecast learns of this round's states only now."""
        seen = [arrival.state for arrival in self.arrivals]
        if self._clients.recognising is not None:
            seen = self._recognised
        return ClientState(
            lived=self._state.lived + 1,
            rows=self.rows.astype(np.int32),
            stream=self._stream,
            memory=self._memory,
            forecast=self._clients.recipe.forecast.observe(
                self._forecast, np.array(seen, dtype=np.int64)
            ),
            objective=self._objective,
            latent=self._latent,
            since=self._since,
            tally=self._tally,
        )

    def _note(self, new: Ints, kept: Ints) -> None:
        """Write down when the kept samples came, and count the labels of the new ones."""
        if self._since is not None:
            now = self._state.lived if self._is_away else self._rnd
            came = np.full(len(new), now, dtype=np.int32)
            self._since = np.concatenate([self._since, came]).take(kept)
        tallying = self._clients.tallying
        if tallying is not None and len(new):
            self._tally = tallying.count(self._tally, self._clients.labels.take(new))

    def _weights(self) -> Floats | None:
        """(held,) how much each sample counts now; none: all the same."""
        if self._since is None:
            return None
        assigned = self._heard.get("emphasis", {}).get("assigned")
        weights = self._clients.sample_weights(
            self.rows, self._since, self._rnd, 1.0 if assigned is None else float(assigned[0])
        )
        self._total = float(weights.sum())
        return weights

    def _total_weight(self) -> float:
        """What the memory counts as a whole, after the last tick."""
        return float(len(self.rows)) if self._total is None else self._total

    def _place(self, arrival: Arrival) -> tuple[int, Outlook]:
        """The state an arrival is taken for, and the outlook that has this state in it.

        The world's own name for it, unless the oracle tells states apart by itself. A state opened
        just now is expected as its prior says; visits count when the round is over.
        """
        oracle, book = self._clients.recognising, self._clients.world.book
        if oracle is None:
            return arrival.state, self.outlook
        self._forecast, state = oracle.recognise(
            self._forecast, self._clients.histogram(arrival.items)
        )
        self._recognised.append(state)
        return state, self._clients.recipe.forecast.outlook(
            self._forecast, book.histograms, book.importance
        )

    @property
    def _required_look(self) -> Look:
        assert self._look is not None, "an attentive recipe needs a look at the model"
        return self._look

    def _turn(self, latent: int) -> None:
        """Tell the objective that the next samples come, and whether their state is another one."""
        remembering = self._clients.remembering
        if remembering is not None:
            changed = self._latent not in (-1, latent)
            self._objective = remembering.turn(
                self._objective, self._required_look, self.rows, changed
            )
        self._latent = latent

    def _trial(self) -> float:
        """Mean loss of the held-out samples now."""
        losses = self._required_look.losses(self._on_trial)
        return float(losses.mean()) if len(losses) else 0.0

    def _intake(self, arrival: Arrival, state: int, outlook: Outlook) -> Intake:
        labels = self._clients.labels
        glance = self._look_at(arrival.items)
        return Intake(
            capacity=self._clients.world.capacity(self.client),
            held=len(self.rows),
            num_new=len(arrival.items),
            state=state,
            held_labels=labels.take(self.rows),
            new_labels=labels.take(arrival.items),
            outlook=outlook,
            glance=glance,
            told=self._heard.get("memory", {}),
        )

    def _look_at(self, new: Ints) -> Glance | None:
        """Held and new samples as the model sees them, for a memory that wants to know.

        The received model stays the same all round: what is held was looked at when it came.
        """
        looking = self._clients.looking
        if looking is None:
            return None
        look = self._required_look
        if looking.looks_at == "current" or self._glance is None:
            rows = np.concatenate([self.rows, new])
            return look.glance(rows, looking.looks_at == "received")
        fresh = look.glance(new, received=True)
        return Glance(*(np.concatenate(both) for both in zip(self._glance, fresh, strict=True)))

    def _renewal(self) -> Floats:
        """Foreseen if the policy can, else what was measured, the same for every state."""
        policy = self._clients.foreseeing
        if policy is not None:
            first = self._first_intake or self._intake(
                self.arrivals[0], self.arrivals[0].state, self.outlook
            )
            first = first._replace(outlook=self.outlook)  # as the round began
            return np.asarray(policy.renewal(self._state.memory, first), dtype=np.float64)
        return np.full(len(self.outlook.probs), np.mean(self._renewed))

    def _embeddings(self) -> Floats:
        """(M, E) what the states of the outlook are like, as the round began."""
        oracle, book = self._clients.recognising, self._clients.world.book
        if oracle is None:
            return book.signatures
        return oracle.signatures(self._state.forecast, book.histograms)


def _unbiased(weights: Floats | None, places: Ints) -> Floats32 | None:
    """(B,) weights of a mini-batch whose gradient is that of the weighted mean, on average."""
    if weights is None:
        return None
    scale = len(weights) / (len(places) * weights.sum()) if weights.any() else 0.0
    return (weights.take(places) * scale).astype(np.float32)
