"""The client's half of a round: samples arrive, some are kept, batches are drawn from them.

Every engine walks through the same object, so what a client does cannot depend on where it does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from thalweg.aggregation import Age, Division
from thalweg.core.talk import Look
from thalweg.core.types import Arrival, Floats32, Ints, Outlook
from thalweg.local import Work
from thalweg.recipes.checks import check_division
from thalweg.recipes.client import Clients, ClientState, Heard
from thalweg.recipes.heeding import heeded
from thalweg.recipes.keeping import Keeping, caught_up
from thalweg.recipes.learning import Learning, MiniBatch


def enter(
    clients: Clients,
    client: int,
    state: ClientState,
    rnd: int,
    looks: Sequence[Look] = (),
    heard: Heard | None = None,
    session: int = 0,
    rehearsal: int = 0,
    models: Sequence[int] = (0,),
) -> ClientRound:
    """A client's part in round `rnd`, after what it collected while it was away.

    Of a rehearsal, if that is not 0, nobody must keep what `leave` returns.
    """
    state = caught_up(clients, client, state, rnd, looks[0] if looks else None, heard)
    state = heeded(clients, client, state, heard)
    return ClientRound(clients, client, state, rnd, looks, heard, session, rehearsal, models)


class ClientRound:
    """One client in one round: what it keeps, and what it learns from that with one model or several.

    Per tick: `observe`, then `divide` if the bank's clients divide their samples, and for the model in every
    place `batches` and training on them with `memo`; `pause`. Then `conclude` and `say` for every place, and
    `leave`. Of an attentive recipe (`Clients.is_attentive`) the client must be able to look at its models
    meanwhile. All models see the same mini-batches, and the stream moves once.
    """

    def __init__(
        self,
        clients: Clients,
        client: int,
        state: ClientState,
        rnd: int,
        looks: Sequence[Look] = (),
        heard: Heard | None = None,
        session: int = 0,
        rehearsal: int = 0,
        models: Sequence[int] = (0,),
    ) -> None:
        self.client, self._clients, self._rnd = client, clients, rnd
        self._models, self._heard = np.array(models, dtype=np.int64), heard or {}
        views: list[Look | None] = [*looks] if looks else [None] * len(models)
        self._keeping = Keeping(clients, client, state, rnd, views[0], heard)
        self._learnings = [
            Learning(clients, client, state, rnd, look, heard, session, rehearsal, place)
            for place, look in enumerate(views)
        ]
        self._division = state.division
        self._concluded: dict[int, Mapping[str, Floats32]] = {}

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

    @cached_property
    def main(self) -> int:
        """The place of the model that predicts for this client, as the round begins."""
        bank = self._clients.dividing
        return 0 if bank is None else bank.main(self._division, self._models)

    def rows_to_test(self, per_tick: int) -> Ints:
        """Rows that arrive in this round and are predicted before anybody learns from them."""
        arrived = [arrival.items[:per_tick] for arrival in self.arrivals]
        return np.concatenate(arrived) if arrived else np.empty(0, dtype=np.int64)

    def observe(self) -> None:
        """Samples arrive, and the memory policy says which stay."""
        _ = self.main  # as the round begins
        latent = self._keeping.meet()
        for learning in self._learnings:
            learning.turn(latent, self.rows)  # while the old ones are still there
        self._keeping.take_in()

    def divide(self, losses: Floats32) -> None:
        """The client divides what it holds now among its models, given (J, held) losses of them as received."""
        bank, keeping = self._clients.dividing, self._keeping
        assert bank is not None
        assert keeping.since is not None
        labels = self._clients.labels.take(self.rows)
        division = Division(self._models, losses, labels, keeping.since.astype(np.int64), self._rnd)
        heard = self._heard.get("bank", {})
        self._division, weights = bank.divide(self._division, division, heard)
        check_division(weights, losses.shape, bank)
        is_used = np.asarray(weights.any(axis=0))
        for learning, counts in zip(self._learnings, weights, strict=True):
            learning.divide(counts, is_used)

    def batches(self, place: int = 0) -> list[MiniBatch]:
        """The mini-batches of this tick, drawn from what is now in memory."""
        return self._learnings[place].batches(self.rows, self._keeping.since)

    def memo(self, start: Floats32, place: int = 0) -> Mapping[str, Floats32]:
        """(P,) vectors for the objective, beside the parameters that the round began with."""
        return self._learnings[place].memo(start)

    def pause(self) -> None:
        """The steps of this tick are done."""
        for learning in self._learnings:
            learning.pause(self._keeping.tick)

    def conclude(self, work: Work, place: int = 0) -> None:
        """All steps of a model are done."""
        self._concluded[place] = self._learnings[place].conclude(work)

    def say(self, place: int = 0) -> dict[str, Floats32]:
        """Messages to the server's halves of the policies, by "stage.name"; once for each model, at the end."""
        learnt = {**self._concluded.get(place, {}), **self._learnings[place].say(self.rows)}
        return {
            **self._about_the_client,
            **{f"objective.{name}": vector for name, vector in learnt.items()},
        }

    def reports(self, place: int = 0) -> Mapping[str, float]:
        """The numbers that the recipe's weights want from this client."""
        weights, learning = self._clients.reporting, self._learnings[place]
        if weights is None:
            return {}
        age = Age(
            self.outlook,
            self._keeping.renewal(),
            self._clients.stream.ticks,
            self._keeping.signatures(),
            learning.total_weight(len(self.rows)),
            learning.mass(len(self.rows)),
        )
        return dict(weights.report(age))

    def leave(self) -> ClientState:
        """What the client remembers; of objectives also for models that it did not train in this round."""
        state = self._learnings[0].leave(self._keeping.leave())
        mine = tuple(learning.objective for learning in self._learnings[1:])
        others = (*mine, *state.others[len(mine) :])
        return state._replace(others=others, division=self._division)

    @cached_property
    def _about_the_client(self) -> dict[str, Floats32]:
        """Messages that do not depend on the model: of the memory and of the bank."""
        bank = self._clients.dividing
        divided = {} if bank is None else bank.say(self._division)
        return {
            **{f"memory.{name}": vector for name, vector in self._keeping.say().items()},
            **{f"bank.{name}": vector for name, vector in divided.items()},
        }
