"""What a client keeps of what arrives, in one round of its life; nobody learns from it here."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thalweg.core.rng import Draw, rng_for
from thalweg.core.talk import Look
from thalweg.core.types import Arrival, Floats, Floats32, Glance, Intake, Ints, Outlook
from thalweg.memory import SaysFromMemory
from thalweg.recipes.checks import check_kept, required
from thalweg.recipes.client import Clients, ClientState, Heard


def caught_up(
    clients: Clients,
    client: int,
    state: ClientState,
    rnd: int,
    look: Look | None = None,
    heard: Heard | None = None,
) -> ClientState:
    """The client as it is before round `rnd`: if it collects when it is away, with all that came.

    A memory that looks at the model goes through what came in the meantime with the model it has just
    received; until it receives one, that waits.
    """
    if clients.stream.collects_when_absent and (clients.looking is None or look is not None):
        while state.lived < rnd:
            away = Keeping(clients, client, state, state.lived, look, heard)
            for _ in range(clients.stream.ticks):
                away.meet()
                away.take_in()
            state = away.leave()
    return state


class Keeping:
    """A memory and what goes with it: when samples came, their labels, and what is expected next.

    Per tick: `meet` what arrives, then `take_in` some of it; at the end `leave`.
    """

    def __init__(
        self,
        clients: Clients,
        client: int,
        state: ClientState,
        rnd: int,
        look: Look | None = None,
        heard: Heard | None = None,
    ) -> None:
        book = clients.stream.book
        self.outlook = clients.recipe.forecast.outlook(
            state.forecast, book.histograms, book.importance
        )  # as the round begins
        self.rows = state.rows.astype(np.int64)  # 32 bits to remember, 64 to compute with
        self.since = state.since
        self.tick = 0  # how many are over
        self._clients, self._client, self._state, self._rnd = clients, client, state, rnd
        self._stream, self.arrivals = clients.stream.emit(state.stream, client, state.lived)
        self._memory, self._forecast, self._tally = state.memory, state.forecast, state.tally
        self._rng = rng_for(clients.seed, Draw.MEMORY, state.lived, client)
        self._look, self._told = look, (heard or {}).get("memory", {})
        self._met, self._outlook_now = 0, self.outlook
        self._recognised: list[int] = []
        self._first_intake: Intake | None = None
        self._renewed: list[float] = []
        self._glance: Glance | None = None  # of what is held, after the last tick

    def meet(self) -> int:
        """The state that the next arrival is taken for.

        The world's own name for it, unless the oracle tells states apart by itself. A state opened just
        now is expected as its prior says; visits count when the round is over.
        """
        arrival, oracle = self.arrivals[self.tick], self._clients.recognising
        self._met = arrival.state
        if oracle is not None:
            histogram, book = self._clients.histogram(arrival.items), self._clients.stream.book
            self._forecast, self._met = oracle.recognise(self._forecast, histogram)
            self._recognised.append(self._met)
            self._outlook_now = self._clients.recipe.forecast.outlook(
                self._forecast, book.histograms, book.importance
            )
        return self._met

    def take_in(self) -> None:
        """The memory policy says which of the samples that were met stay, and which go."""
        arrival = self.arrivals[self.tick]
        policy = self._clients.recipe.memory
        intake = self._intake(arrival, self._met, self._outlook_now)
        self._memory, kept = policy.keep(self._memory, intake, self._rng)
        check_kept(kept, intake, policy)
        self.rows = np.concatenate([self.rows, arrival.items]).take(kept)
        self._note(arrival.items, kept)
        if intake.glance is not None:
            self._glance = Glance(*(part[kept] for part in intake.glance))
        self._first_intake = self._first_intake or intake
        if self._clients.foreseeing is None:
            self._renewed.append(np.count_nonzero(kept >= intake.held) / intake.capacity)
        self.tick += 1

    def say(self) -> Mapping[str, Floats32]:
        """The memory's messages to its half at the server; once, at the end."""
        memory = self._clients.recipe.memory
        if not isinstance(memory, SaysFromMemory):
            return {}
        self._memory, words = memory.say(self._memory)
        return words

    def leave(self) -> ClientState:
        """What the client remembers; the forecast learns of this round's states only now."""
        seen = [arrival.state for arrival in self.arrivals]
        if self._clients.recognising is not None:
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
            tally=self._tally,
        )

    def renewal(self) -> Floats:
        """(M,) foreseen if the policy can, else what was measured, the same for every state."""
        policy = self._clients.foreseeing
        if policy is not None:
            first = self._first_intake or self._intake(
                self.arrivals[0], self.arrivals[0].state, self.outlook
            )
            first = first._replace(outlook=self.outlook)  # as the round began
            return np.asarray(policy.renewal(self._state.memory, first), dtype=np.float64)
        return np.full(len(self.outlook.probs), np.mean(self._renewed))

    def signatures(self) -> Floats:
        """(M, E) what the states of the outlook are like, as the round began."""
        oracle, book = self._clients.recognising, self._clients.stream.book
        if oracle is None:
            return book.signatures
        return oracle.signatures(self._state.forecast, book.histograms)

    def _intake(self, arrival: Arrival, state: int, outlook: Outlook) -> Intake:
        labels = self._clients.labels
        return Intake(
            capacity=self._clients.stream.capacity(self._client),
            held=len(self.rows),
            num_new=len(arrival.items),
            state=state,
            held_labels=labels.take(self.rows),
            new_labels=labels.take(arrival.items),
            outlook=outlook,
            glance=self._look_at(arrival.items),
            told=self._told,
        )

    def _look_at(self, new: Ints) -> Glance | None:
        """Held and new samples as the model sees them, for a memory that wants to know.

        The received model stays the same all round: what is held was looked at when it came.
        """
        looking = self._clients.looking
        if looking is None:
            return None
        look = required(self._look)
        if looking.looks_at == "current" or self._glance is None:
            rows = np.concatenate([self.rows, new])
            return look.glance(rows, looking.looks_at == "received")
        fresh = look.glance(new, received=True)
        return Glance(*(np.concatenate(both) for both in zip(self._glance, fresh, strict=True)))

    def _note(self, new: Ints, kept: Ints) -> None:
        """Write down when the kept samples came, and count the labels of the new ones."""
        if self.since is not None:
            came = np.full(len(new), self._rnd, dtype=np.int32)
            self.since = np.concatenate([self.since, came]).take(kept)
        tallying = self._clients.tallying
        if tallying is not None and len(new):
            self._tally = tallying.count(self._tally, self._clients.labels.take(new))
