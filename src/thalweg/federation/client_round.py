"""The client's half of a round: samples arrive, some are kept, batches are drawn from them.

Every engine walks through the same object, so what a client does cannot depend on where it does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from thalweg.aggregation import MemorySummary
from thalweg.bank import SplitContext
from thalweg.core.capabilities import ModelProbe
from thalweg.core.types import Arrival, Floats32, Ints, Outlook
from thalweg.federation.batching import BatchBuilder, MiniBatch
from thalweg.federation.checks import check_split
from thalweg.federation.client_state import ClientProgram, ClientState, Received
from thalweg.federation.extensions.client_alarms import apply_alarm
from thalweg.federation.ingest import Ingest, catch_up
from thalweg.local import TrainingSummary


def start_round(
    clients: ClientProgram,
    client: int,
    state: ClientState,
    rnd: int,
    probes: Sequence[ModelProbe] = (),
    received: Received | None = None,
    session: int = 0,
    probe_round: int = 0,
    models: Sequence[int] = (0,),
) -> ClientRound:
    """A client's part in round `rnd`, after what it collected while it was away.

    Of a rehearsal, if that is not 0, nobody must keep what `leave` returns.
    """
    state = catch_up(clients, client, state, rnd, probes[0] if probes else None, received)
    state = apply_alarm(clients, client, state, received)
    return ClientRound(clients, client, state, rnd, probes, received, session, probe_round, models)


class ClientRound:
    """One client in one round: what it keeps, and what it learns from that with one model or several.

    Per tick: `observe`, then `divide` if the bank's clients divide their samples, and for the model in every
    place `batches` and training on them with `memo`; `pause`. Then `finish_round` and `say` for every place, and
    `leave`. Of an attentive recipe (`ClientProgram.needs_probe`) the client must be able to look at its models
    meanwhile. All models see the same mini-batches, and the stream moves once.
    """

    def __init__(
        self,
        clients: ClientProgram,
        client: int,
        state: ClientState,
        rnd: int,
        probes: Sequence[ModelProbe] = (),
        received: Received | None = None,
        session: int = 0,
        probe_round: int = 0,
        models: Sequence[int] = (0,),
    ) -> None:
        self.client, self._clients, self._rnd = client, clients, rnd
        self._models, self._received = np.array(models, dtype=np.int64), received or {}
        views: list[ModelProbe | None] = [*probes] if probes else [None] * len(models)
        self._ingest = Ingest(clients, client, state, rnd, views[0], received)
        self._batch_builders = [
            BatchBuilder(clients, client, state, rnd, probe, received, session, probe_round, slot)
            for slot, probe in enumerate(views)
        ]
        self._split = state.split
        self._concluded: dict[int, Mapping[str, Floats32]] = {}

    @property
    def rows(self) -> Ints:
        """(held,) what is in memory."""
        return self._ingest.rows

    @property
    def arrivals(self) -> list[Arrival]:
        """What arrives in this round, one for each tick."""
        return self._ingest.arrivals

    @property
    def outlook(self) -> Outlook:
        """What the client expected as the round began."""
        return self._ingest.outlook

    @cached_property
    def main_model(self) -> int:
        """The place of the model that predicts for this client, as the round begins."""
        bank = self._clients.bank_with_split
        return 0 if bank is None else bank.main_model(self._split, self._models)

    def rows_to_test(self, per_tick: int) -> Ints:
        """Rows that arrive in this round and are predicted before anybody learns from them."""
        arrived = [arrival.items[:per_tick] for arrival in self.arrivals]
        return np.concatenate(arrived) if arrived else np.empty(0, dtype=np.int64)

    def observe(self) -> None:
        """Samples arrive, and the memory policy says which stay."""
        _ = self.main_model  # as the round begins
        latent = self._ingest.identify_state()
        for learning in self._batch_builders:
            learning.start_tick(latent, self.rows)  # while the old ones are still there
        self._ingest.update_memory()

    def split_samples(self, losses: Floats32) -> None:
        """The client divides what it holds now among its models, given (J, held) losses of them as received."""
        bank, keeping = self._clients.bank_with_split, self._ingest
        assert bank is not None
        assert keeping.since is not None
        labels = self._clients.labels.take(self.rows)
        split = SplitContext(
            self._models, losses, labels, keeping.since.astype(np.int64), self._rnd
        )
        received = self._received.get("bank", {})
        self._split, weights = bank.split_samples(self._split, split, received)
        check_split(weights, losses.shape, bank)
        is_used = np.asarray(weights.any(axis=0))
        for learning, counts in zip(self._batch_builders, weights, strict=True):
            learning.split_samples(counts, is_used)

    def batches(self, slot: int = 0) -> list[MiniBatch]:
        """The mini-batches of this tick, drawn from what is now in memory."""
        return self._batch_builders[slot].batches(self.rows, self._ingest.since)

    def memo(self, start: Floats32, slot: int = 0) -> Mapping[str, Floats32]:
        """(P,) vectors for the objective, beside the parameters that the round began with."""
        return self._batch_builders[slot].memo(start)

    def end_tick(self) -> None:
        """The steps of this tick are done."""
        for learning in self._batch_builders:
            learning.end_tick(self._ingest.tick)

    def finish_round(self, summary: TrainingSummary, slot: int = 0) -> None:
        """All steps of a model are done."""
        self._concluded[slot] = self._batch_builders[slot].finish_round(summary)

    def upload(self, slot: int = 0) -> dict[str, Floats32]:
        """Messages to the server's halves of the policies, by "stage.name"; once for each model, at the end."""
        learnt = {**self._concluded.get(slot, {}), **self._batch_builders[slot].upload(self.rows)}
        return {
            **self._client_uploads,
            **{f"objective.{name}": vector for name, vector in learnt.items()},
        }

    def reports(self, slot: int = 0) -> Mapping[str, float]:
        """The numbers that the recipe's weights want from this client."""
        weights, learning = self._clients.weights_with_reports, self._batch_builders[slot]
        if weights is None:
            return {}
        summary = MemorySummary(
            self.outlook,
            self._ingest.renewal(),
            self._clients.stream.ticks,
            self._ingest.signatures(),
            learning.total_weight(len(self.rows)),
            learning.mass(len(self.rows)),
        )
        return dict(weights.report(summary))

    def finish(self) -> ClientState:
        """What the client remembers; of objectives also for models that it did not train in this round."""
        state = self._batch_builders[0].finish(self._ingest.finish())
        mine = tuple(learning.objective for learning in self._batch_builders[1:])
        other_objectives = (*mine, *state.other_objectives[len(mine) :])
        return state._replace(other_objectives=other_objectives, split=self._split)

    @cached_property
    def _client_uploads(self) -> dict[str, Floats32]:
        """Messages that do not depend on the model: of the memory and of the bank."""
        bank = self._clients.bank_with_split
        divided = {} if bank is None else bank.upload(self._split)
        return {
            **{f"memory.{name}": vector for name, vector in self._ingest.upload().items()},
            **{f"bank.{name}": vector for name, vector in divided.items()},
        }
