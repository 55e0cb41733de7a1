"""The client's half of a round: samples arrive, some are kept, batches are drawn from them.

Every engine walks through the same object, so what a client does cannot depend on where it does it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from thalweg.aggregation import Age
from thalweg.core.talk import Look
from thalweg.core.types import Arrival, Floats32, Ints, Outlook
from thalweg.local import Work
from thalweg.recipes.client import Clients, ClientState, Heard
from thalweg.recipes.heeding import heeded
from thalweg.recipes.keeping import Keeping, caught_up
from thalweg.recipes.learning import Learning, MiniBatch


def enter(
    clients: Clients,
    client: int,
    state: ClientState,
    rnd: int,
    look: Look | None = None,
    heard: Heard | None = None,
    session: int = 0,
    rehearsal: int = 0,
) -> ClientRound:
    """A client's part in round `rnd`, after what it collected while it was away.

    Of a rehearsal, if that is not 0, nobody must keep what `leave` returns.
    """
    state = caught_up(clients, client, state, rnd, look, heard)
    state = heeded(clients, client, state, heard)
    return ClientRound(clients, client, state, rnd, look, heard, session, rehearsal)


class ClientRound:
    """One client in one round: what it keeps, and what it learns from that.

    Per tick: `observe`, `batches`, train on them with `memo`, `pause`; then `conclude`, `say` and `leave`. Of an
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
        session: int = 0,
        rehearsal: int = 0,
    ) -> None:
        self.client, self._clients = client, clients
        self._keeping = Keeping(clients, client, state, rnd, look, heard)
        self._learning = Learning(clients, client, state, rnd, look, heard, session, rehearsal)
        self._concluded: Mapping[str, Floats32] = {}

    @property
    def rows(self) -> Ints:
        """(held,) what is in memory."""
        return self._keeping.rows

    @property
    def arrivals(self) -> list[Arrival]:
        """What arrives in this round, one for each tick."""
        return self._keeping.arrivals

    @property
    def outlook(self) -> Outlook:
        """What the client expected as the round began."""
        return self._keeping.outlook

    def rows_to_test(self, per_tick: int) -> Ints:
        """Rows that arrive in this round and are predicted before anybody learns from them."""
        arrived = [arrival.items[:per_tick] for arrival in self.arrivals]
        return np.concatenate(arrived) if arrived else np.empty(0, dtype=np.int64)

    def observe(self) -> None:
        """Samples arrive, and the memory policy says which stay."""
        latent = self._keeping.meet()
        self._learning.turn(latent, self.rows)  # while the old ones are still there
        self._keeping.take_in()

    def batches(self) -> list[MiniBatch]:
        """The mini-batches of this tick, drawn from what is now in memory."""
        return self._learning.batches(self.rows, self._keeping.since)

    def memo(self, start: Floats32) -> Mapping[str, Floats32]:
        """(P,) vectors for the objective, beside the parameters that the round began with."""
        return self._learning.memo(start)

    def pause(self) -> None:
        """The steps of this tick are done."""
        self._learning.pause(self._keeping.tick)

    def conclude(self, work: Work) -> None:
        """All steps are done."""
        self._concluded = self._learning.conclude(work)

    def say(self) -> dict[str, Floats32]:
        """Messages to the server's halves of the policies, by "stage.name"; once, at the end."""
        kept = self._keeping.say()
        learnt = {**self._concluded, **self._learning.say(self.rows)}
        return {
            **{f"memory.{name}": vector for name, vector in kept.items()},
            **{f"objective.{name}": vector for name, vector in learnt.items()},
        }

    def reports(self) -> Mapping[str, float]:
        """The numbers that the recipe's weights want from this client."""
        weights = self._clients.reporting
        if weights is None:
            return {}
        age = Age(
            self.outlook,
            self._keeping.renewal(),
            self._clients.stream.ticks,
            self._keeping.signatures(),
            self._learning.total_weight(len(self.rows)),
        )
        return dict(weights.report(age))

    def leave(self) -> ClientState:
        """What the client remembers."""
        return self._learning.leave(self._keeping.leave())
